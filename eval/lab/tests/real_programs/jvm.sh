jvm() { "$@" java -Xms64m -Xmx64m -XX:-UsePerfData -cp "$inputs" Churn "$turn" "$built"; }
