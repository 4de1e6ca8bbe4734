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

// A report collects the samples of all contenders.
type report struct {
	contenders []*dhcpServer
	samples    map[string]map[string]sample // by contender, by row
	noisy      map[string]int               // samples by contender that stayed disturbed
	failures   []string
	taken      int
}

func newReport(contenders []*dhcpServer) *report {
	r := &report{contenders: contenders, samples: map[string]map[string]sample{}, noisy: map[string]int{}}
	for _, c := range contenders {
		r.samples[c.name] = map[string]sample{}
	}
	return r
}

func (r *report) add(c *dhcpServer, v values, noisy bool) {
	for key, x := range v {
		r.samples[c.name][key] = append(r.samples[c.name][key], x)
	}
	r.taken++
	if noisy {
		r.noisy[c.name]++
	}
}

func (r *report) fail(t dhcpTest, c *dhcpServer, round int, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s, %s, round %d: %v", c.name, t.name, round+1, err))
}

// print writes the table, or JSON.
func (r *report) print(b *bench, tests []dhcpTest) error {
	if b.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{
			"machine": machine(), "rounds": b.rounds, "samples": r.samples, "disturbed": r.noisy, "failures": r.failures,
		})
	}
	fmt.Printf("\n%s; scratch on %s; rounds: %d\n\n%s", machine(), filesystem(b.dir), b.rounds, r.table(tests))
	if len(r.noisy) > 0 {
		fmt.Printf("\nDisturbed (others used over %.0f %% of a CPU): %v of %d samples.\n", 100*disturbs, r.noisy, r.taken)
	}
	for _, f := range r.failures {
		fmt.Printf("\nNot measured: %s\n", f)
	}
	return nil
}

// table is Markdown: a line for each row, a column for each contender, then bootlab's ratio to each peer.
func (r *report) table(tests []dhcpTest) string {
	var b strings.Builder
	head, rule := "| |", "|---|"
	for _, c := range r.contenders {
		head, rule = head+" "+c.name+" |", rule+"---|"
	}
	peers := r.contenders[1:]
	if r.contenders[0].program != "" {
		peers = nil // nobody to compare with
	}
	for _, c := range peers {
		head, rule = head+" ÷ "+c.name+" |", rule+"---|"
	}
	fmt.Fprintf(&b, "%s\n%s\n", head, rule)
	for _, t := range tests {
		for _, line := range t.rows {
			r.line(&b, line, peers)
		}
	}
	return b.String()
}

func (r *report) line(b *strings.Builder, line row, peers []*dhcpServer) {
	title := line.title
	if line.lower {
		title += " ↓"
	}
	fmt.Fprintf(b, "| %s |", title)
	for _, c := range r.contenders {
		fmt.Fprintf(b, " %s |", spread(r.samples[c.name][line.key]))
	}
	ours := r.samples[r.contenders[0].name][line.key]
	for _, c := range peers {
		theirs := r.samples[c.name][line.key]
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

// filesystem says what durability costs here.
func filesystem(dir string) string {
	out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output()
	if err != nil {
		return "an unknown file system"
	}
	return strings.TrimSpace(string(out))
}
