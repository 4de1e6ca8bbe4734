package plan

// Text, Derived and Recorded are the fields that are no keys.
var (
	Text     = text
	Derived  = derived
	Recorded = recorded
)
