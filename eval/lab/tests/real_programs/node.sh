node() { "$@" node --max-old-space-size=96 "$inputs/churn.js" "$turn" "$built"; }
