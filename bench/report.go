package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A row is one line of the table: what a test measured, by key.
type row struct {
	key, title string
	lower      bool // is better
}

// values are what one run measured, by key of the row. What a candidate cannot do, or not in time, is left out.
type values map[string]float64

func (v values) short(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if x, ok := v[r.key]; ok {
			fmt.Fprintf(&b, "%s %s, ", r.key, figure(x))
		}
	}
	return b.String()
}

// bootlabName is the candidate that the others are compared with.
const bootlabName = "bootlab"

// A report collects the samples of all candidates, by their names. bootlab is the first, where it takes part.
type report struct {
	candidates []string
	samples    map[string]map[string]sample // by candidate, by row
	noisy      map[string]int               // samples by candidate that stayed disturbed
	failures   []string
	taken      int
}

func newReport(candidates []string) *report {
	r := &report{candidates: candidates, samples: map[string]map[string]sample{}, noisy: map[string]int{}}
	for _, c := range candidates {
		r.samples[c] = map[string]sample{}
	}
	return r
}

func (r *report) add(candidate string, v values, noisy bool) {
	for key, x := range v {
		r.samples[candidate][key] = append(r.samples[candidate][key], x)
	}
	r.taken++
	if noisy {
		r.noisy[candidate]++
	}
}

// A turn is one candidate in one round of one test.
type turn struct {
	test, candidate string
	round           int
}

func (r *report) fail(t turn, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s, %s, round %d: %v", t.candidate, t.test, t.round+1, err))
	fmt.Fprintf(os.Stderr, "%-9s round %d %-8s %v\n", t.test, t.round+1, t.candidate, err)
}

// disturbs is the part of one CPU that other processes may use during a sample.
const disturbs = 0.10

// recovery is the pause before a sample is taken again: a hypervisor that took the processors from a machine for its long load gives
// them back when it has been idle for some seconds.
const recovery = 10 * time.Second

// measure takes one sample, again if other processes used the machine meanwhile, and keeps the least disturbed. take returns the values,
// and the part of a CPU that other processes used.
func (b *bench) measure(out *report, t turn, rows []row, take func() (values, float64, error)) {
	var best values
	least := 0.0
	for try := range 1 + b.retakes {
		if try > 0 {
			time.Sleep(recovery)
		}
		got, foreign, err := take()
		if err != nil {
			out.fail(t, err)
			return
		}
		fmt.Fprintf(os.Stderr, "%-9s round %d %-8s %s(others %.0f %%)\n", t.test, t.round+1, t.candidate, got.short(rows), 100*foreign)
		if try == 0 || foreign < least {
			best, least = got, foreign
		}
		if foreign <= disturbs {
			break
		}
	}
	out.add(t.candidate, best, least > disturbs)
}

// print writes the table, or JSON.
func (r *report) print(b *bench, rows []row) error {
	if b.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{
			"machine": machine(), "rounds": b.rounds, "samples": r.samples, "disturbed": r.noisy, "failures": r.failures,
		})
	}
	fmt.Printf("\n%s; scratch on %s; rounds: %d\n\n%s", machine(), filesystem(b.dir), b.rounds, r.table(rows))
	if len(r.noisy) > 0 {
		fmt.Printf("\nDisturbed (others used over %.0f %% of a CPU): %v of %d samples.\n", 100*disturbs, r.noisy, r.taken)
	}
	for _, f := range r.failures {
		fmt.Printf("\nNot measured: %s\n", f)
	}
	return nil
}

// table is Markdown: a line for each row, a column for each candidate, then bootlab's ratio to each peer.
func (r *report) table(rows []row) string {
	var b strings.Builder
	head, rule := "| |", "|---|"
	for _, c := range r.candidates {
		head, rule = head+" "+c+" |", rule+"---|"
	}
	peers := r.candidates[1:]
	if r.candidates[0] != bootlabName {
		peers = nil // nothing to compare with
	}
	for _, c := range peers {
		head, rule = head+" ÷ "+c+" |", rule+"---|"
	}
	fmt.Fprintf(&b, "%s\n%s\n", head, rule)
	for _, line := range rows {
		r.line(&b, line, peers)
	}
	return b.String()
}

func (r *report) line(b *strings.Builder, line row, peers []string) {
	title := line.title
	if line.lower {
		title += " ↓"
	}
	fmt.Fprintf(b, "| %s |", title)
	for _, c := range r.candidates {
		fmt.Fprintf(b, " %s |", spread(r.samples[c][line.key]))
	}
	ours := r.samples[r.candidates[0]][line.key]
	for _, c := range peers {
		theirs := r.samples[c][line.key]
		ratio := "-"
		if len(ours) > 0 && len(theirs) > 0 && theirs.median() != 0 {
			ratio = fmt.Sprintf("%.2f", ours.median()/theirs.median())
		}
		fmt.Fprintf(b, " %s |", ratio)
	}
	b.WriteString("\n")
}

// spread returns "median [least–most]", each as exact as it makes sense.
func spread(s sample) string {
	if len(s) == 0 {
		return "-"
	}
	least, most := figure(slices.Min(s)), figure(slices.Max(s))
	if least == most {
		return least
	}
	return fmt.Sprintf("%s [%s–%s]", figure(s.median()), least, most)
}

// figure writes a number with three digits, or all that it has before the point.
func figure(x float64) string {
	switch {
	case x == float64(int64(x)) || x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.*f", decimals(x), x)
}

// decimals are those of a small number: two digits at least that are not zero.
func decimals(x float64) int {
	if x >= 0.1 {
		return 2
	}
	return 3
}

func machine() string {
	kernel, _ := exec.Command("uname", "-sr").Output()
	cpu := "unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			cpu = strings.Trim(name, " \t:\n")
			break
		}
	}
	return fmt.Sprintf("%s, %s, %s", time.Now().UTC().Format("2 January 2006"), cpu, strings.TrimSpace(string(kernel)))
}

// filesystem returns the type of the file system, on which the cost of durability depends.
func filesystem(dir string) string {
	out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output()
	if err != nil {
		return "an unknown file system"
	}
	return strings.TrimSpace(string(out))
}
