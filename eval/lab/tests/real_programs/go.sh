HOLD_go=20
go() { "$@" "$inputs/churn-go" "$turn" "$built"; }
