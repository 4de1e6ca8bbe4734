package timeline

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Style says whether text may hold colours.
type Style int

// The styles.
const (
	Plain    Style = iota
	Coloured       // ANSI escape sequences, for terminals
)

// Options say how to format.
type Options struct {
	Style    Style
	Location *time.Location // of the date; nil: UTC
}

// Colours by what they say.
const (
	red   = "31"
	green = "32"
	grey  = "90"
	bold  = "1"
)

func (o Options) paint(colour, s string) string {
	if o.Style != Coloured || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// Format writes one boot as a table: time since its start, stage, event, detail, bytes, duration, rate and error. The error is w's.
func Format(w io.Writer, b Boot, o Options) error {
	var out strings.Builder
	fmt.Fprintln(&out, title(b, o))
	rows := make([][4]string, len(b.Events))
	var width [4]int
	stage := event.Stage("")
	for i, e := range b.Events {
		rows[i] = [4]string{Since(e.At.Sub(b.Started)), "", words(e.Kind), detail(e)}
		if rows[i][3] == "" && e.Addr.IsValid() {
			rows[i][3] = e.Addr.String()
		}
		if s := e.Kind.Stage(); s != stage {
			rows[i][1], stage = string(s), s
		}
		for c, cell := range rows[i] {
			width[c] = max(width[c], utf8.RuneCountInString(cell))
		}
	}
	for i, e := range b.Events {
		writeRow(&out, rows[i], width, e, o)
	}
	if b.Outcome == Failed {
		fmt.Fprintf(&out, "  %s\n", o.paint(red, "failed: "+lab.Printable(b.Reason)))
	}
	if b.Claimed > 0 {
		fmt.Fprintf(&out, "  events that other machines caused: %d\n", b.Claimed)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// FormatEvent writes one event as a line that begins with the time of day.
func FormatEvent(w io.Writer, e event.Event, o Options) error {
	at := e.At.In(o.location()).Format("15:04:05.000")
	var out strings.Builder
	writeRow(&out, [4]string{at, string(e.Kind.Stage()), words(e.Kind), detail(e)}, [4]int{12, 8, 16, 0}, e, o)
	_, err := io.WriteString(w, out.String())
	return err
}

func (o Options) location() *time.Location {
	if o.Location == nil {
		return time.UTC
	}
	return o.Location
}

func title(b Boot, o Options) string {
	name := b.Host
	switch {
	case name == "":
		name = b.MAC.String()
	case !b.MAC.IsZero():
		name += " (" + b.MAC.String() + ")"
	}
	colour := bold
	switch b.Outcome {
	case Done:
		colour = green
	case Failed, "stopped":
		colour = red
	}
	at := b.Started.In(o.location()).Format("2006-01-02 15:04:05 MST")
	if b.Outcome == None {
		return fmt.Sprintf("%s  %s  no boot: the machine has sent nothing since", o.paint(bold, name), at)
	}
	where := "at stage " + string(b.Stage)
	if b.Stage == "" { // armed or power-cycled only
		where = "no request received yet"
	}
	return fmt.Sprintf("%s  %s  %s after %s %s", o.paint(bold, name), at,
		o.paint(colour, b.Outcome), strings.TrimSpace(Since(b.Ended.Sub(b.Started))), where)
}

func writeRow(out *strings.Builder, row [4]string, width [4]int, e event.Event, o Options) {
	colour := ""
	switch {
	case e.Kind.Failure() || e.Err != "":
		colour = red
	case finishes(e, &bootSummary{Fetched: true}): // any boot, whatever it fetched
		colour = green
	}
	what := pad(row[2], width[2])
	if colour != "" {
		what = o.paint(colour, what)
	}
	line := fmt.Sprintf("  %s  %s  %s  %s", o.paint(grey, left(row[0], width[0])), pad(row[1], width[1]), what, pad(row[3], width[3]))
	if s := amount(e); s != "" {
		line += "  " + s
	}
	if s := e.ClaimedBy(); s != "" {
		line += "  " + s
	}
	if e.Err != "" {
		line += "  " + o.paint(red, lab.Printable(e.Err))
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// detail is the detail of an event, or how many a summary stands for: "312 more in 10 s, the last: files/nosuch".
func detail(e event.Event) string {
	text := lab.Printable(e.Text())
	if e.More == 0 {
		return text
	}
	more := fmt.Sprintf("%d more in %d s", e.More, int(e.Over.Round(time.Second).Seconds()))
	if text != "" {
		more += ", the last: " + text
	}
	return more
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

func left(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// words returns the kind's name without underscores.
func words(k event.Kind) string { return strings.ReplaceAll(k.String(), "_", " ") }

// amount formats bytes, duration and rate.
func amount(e event.Event) string {
	var parts []string
	if e.Bytes > 0 {
		parts = append(parts, lab.Size(e.Bytes).Rounded())
	}
	if e.Dur > 0 && (e.Bytes > 0 || e.Dur >= time.Millisecond) {
		parts = append(parts, "in "+strings.TrimSpace(Since(e.Dur)))
	}
	// The rate of a short transfer means nothing.
	if e.Bytes >= 64<<10 && e.Dur >= time.Millisecond {
		parts = append(parts, "("+lab.Size(float64(e.Bytes)/e.Dur.Seconds()).Rounded()+"/s)")
	}
	return strings.Join(parts, " ")
}

// Since formats a span of time with three digits or so: "12 ms", "3.25 s", "4m07s", "2h05m".
func Since(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Since(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
