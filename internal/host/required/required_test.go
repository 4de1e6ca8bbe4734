package required

import (
	"io"
	"testing"
)

func TestFields(t *testing.T) {
	t.Parallel()
	type Deps struct {
		Limit  int
		Now    func()
		Out    io.Writer
		Count  *int
		Hidden map[string]int
	}
	whole := Deps{Now: func() {}, Out: io.Discard, Count: new(int), Hidden: map[string]int{}}
	tests := []struct {
		name     string
		change   func(*Deps)
		optional []string
		want     any
	}{
		{"whole", func(*Deps) {}, nil, nil},
		{"function", func(d *Deps) { d.Now = nil }, nil, "required: Deps.Now is nil"},
		{"interface", func(d *Deps) { d.Out = nil }, nil, "required: Deps.Out is nil"},
		{"pointer", func(d *Deps) { d.Count = nil }, nil, "required: Deps.Count is nil"},
		{"the first of two", func(d *Deps) { d.Count, d.Out = nil, nil }, nil, "required: Deps.Out is nil"},
		{"optional", func(d *Deps) { d.Count, d.Hidden = nil, nil }, []string{"Count", "Hidden"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			deps := whole
			tt.change(&deps)
			defer func() {
				if got := recover(); got != tt.want {
					t.Errorf("panic %v, want %v", got, tt.want)
				}
			}()
			Fields(deps, tt.optional...)
		})
	}
}
