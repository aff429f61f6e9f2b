go() { "$@" "$inputs/churn-go" "$turn" "$built"; }
