//! libterrace.so: page transactions inside the managed program.
