// SPDX-License-Identifier: MIT OR Apache-2.0
//! As much of redis' protocol as a loader and a checker need: commands out in a pipeline, replies
//! in. Of an array [`Client::many`] reads the length, [`Client::reply`] then each value.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status or a bulk string.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// No such key.
    Nil,
    /// It refused.
    Refused(String),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client<S: Read + Write> {
    stream: BufReader<S>,
    out: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream: BufReader::with_capacity(256 << 10, stream),
            out: Vec::new(),
        }
    }

    /// Puts a command into the pipeline.
    pub(super) fn queue(&mut self, command: &[&[u8]]) {
        self.out
            .extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for part in command {
            self.out
                .extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            self.out.extend_from_slice(part);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the pipeline; a reply is to be read for each command in it.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The length of the array that is the next reply; as many replies follow.
    pub(super) fn many(&mut self) -> io::Result<usize> {
        let text = self.line()?;
        let length = text.strip_prefix('*').and_then(|rest| rest.parse().ok());
        length.ok_or_else(|| io::Error::other(format!("The server answered '{text}'")))
    }

    /// A line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        line.strip_suffix(b"\r\n")
            .and_then(|line| std::str::from_utf8(line).ok())
            .map(str::to_owned)
            .ok_or_else(|| io::Error::other("The server closed the connection"))
    }

    /// The next reply.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        let text = self.line()?;
        let strange = || io::Error::other(format!("The server answered '{text}'"));
        let (kind, rest) = text.split_at_checked(1).ok_or_else(strange)?;
        match kind {
            "+" => Ok(Reply::Text(rest.into())),
            "-" => Ok(Reply::Refused(rest.into())),
            ":" => rest.parse().map(Reply::Number).map_err(|_| strange()),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let bytes: usize = rest.parse().map_err(|_| strange())?;
                let mut body = vec![0; bytes + 2];
                self.stream.read_exact(&mut body)?;
                body.truncate(bytes);
                Ok(Reply::Text(body))
            }
            _ => Err(strange()),
        }
    }

    /// One command, one reply, as text.
    pub(super) fn ask(&mut self, command: &[&[u8]]) -> io::Result<String> {
        self.queue(command);
        self.send()?;
        match self.reply()? {
            Reply::Text(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Reply::Number(number) => Ok(number.to_string()),
            Reply::Nil => Ok(String::new()),
            Reply::Refused(why) => Err(io::Error::other(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has its answers ready.
    #[derive(Debug)]
    struct Canned {
        answers: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Canned {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.answers.read(buffer)
        }
    }

    impl Write for Canned {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn replies_of_each_kind() {
        let answers = b"+OK\r\n:42\r\n*2\r\n$-1\r\n$5\r\na\r\nbc\r\n-ERR no\r\n".to_vec();
        let mut client = Client::new(Canned {
            answers: io::Cursor::new(answers),
            heard: Vec::new(),
        });
        client.queue(&[b"GET", b"k\r\n"]);
        client.send().unwrap();
        assert_eq!(
            client.stream.get_ref().heard,
            b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n"
        );
        assert_eq!(client.reply().unwrap(), Reply::Text(b"OK".to_vec()));
        assert_eq!(client.reply().unwrap(), Reply::Number(42));
        assert_eq!(client.many().unwrap(), 2);
        assert_eq!(client.reply().unwrap(), Reply::Nil);
        assert_eq!(client.reply().unwrap(), Reply::Text(b"a\r\nbc".to_vec()));
        assert_eq!(client.reply().unwrap(), Reply::Refused("ERR no".to_owned()));
        assert!(client.reply().is_err(), "the connection is closed");
    }
}
