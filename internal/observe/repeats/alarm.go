package repeats

import "time"

// An Alarm is the timer of an owner of limiters. The owner's lock guards it; the zero value is ready.
type Alarm struct {
	timer *time.Timer
	due   time.Time // when it fires; zero: it does not
}

// Set makes the alarm call fire at next, unless it does so earlier or next is zero. fire runs in a goroutine of its own and calls Fired.
func (a *Alarm) Set(now, next time.Time, fire func()) {
	if next.IsZero() || !a.due.IsZero() && !next.Before(a.due) {
		return
	}
	a.due = next
	if a.timer == nil {
		a.timer = time.AfterFunc(next.Sub(now), fire)
		return
	}
	a.timer.Reset(next.Sub(now))
}

// Fired is called when the alarm has fired: the next Set starts it again.
func (a *Alarm) Fired() { a.due = time.Time{} }
