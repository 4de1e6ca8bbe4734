package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const perfText = `***Rate statistics***
Rate: 332.634 4-way exchanges/second, expected rate: 500

***Statistics for: DISCOVER-OFFER***
sent packets: 4
received packets: 4
drops: 0
avg delay: 0.167 ms

***Statistics for: REQUEST-ACK***
sent packets: 4
received packets: 3
drops: 1
avg delay: 0.859 ms

***Statistics for: REQUEST-ACK (renewal)***
sent packets: 2
received packets: 2
avg delay: 1.5 ms

***Timestamps for packets: DISCOVER-OFFER***
sent / received: 000000.001000 / 000000.003000
sent / received: 000000.002000 / 000000.003000

***Timestamps for packets: REQUEST-ACK***
sent / received: 000000.004000 / 000000.009000
`

func TestParsePerf(t *testing.T) {
	t.Parallel()
	p := parsePerf([]byte(perfText))
	want := []perfLeg{
		{name: "DISCOVER-OFFER", sent: 4, received: 4, average: 0.167, p99: 2},
		{name: "REQUEST-ACK", sent: 4, received: 3, average: 0.859, p99: 5},
		{name: "REQUEST-ACK (renewal)", sent: 2, received: 2, average: 1.5},
	}
	if d := cmp.Diff(want, p.legs, cmp.AllowUnexported(perfLeg{}), cmpopts.EquateApprox(0, 1e-6)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if p.clean(4) {
		t.Error("one of four lost, and clean")
	}
	p.legs[1].received = 4
	if !p.clean(4) {
		t.Error("none lost, and not clean")
	}
	if p.clean(8) {
		t.Error("half the rate was sent, and clean")
	}
}

func TestClimb(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit int
		want  []int
	}{
		{1000, []int{400, 800, 1600, 1200, 1000}},
		{150, []int{400, 200, 100, 150, 175}},
		{0, []int{400, 200, 100, 50}},
	} {
		var tried []int
		err := climb(func(rate int) (bool, error) {
			tried = append(tried, rate)
			return rate <= tt.limit, nil
		})
		if d := cmp.Diff(tt.want, tried); d != "" || err != nil {
			t.Errorf("a server of %d/s: %v (-want +got):\n%s", tt.limit, err, d)
		}
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	parent, used, ok := parseStat([]byte("42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 5 6"))
	if parent != 7 || used != 4330 || !ok {
		t.Errorf("parent %d, used %d, %t", parent, used, ok)
	}
	if _, _, ok := parseStat([]byte("42 (a")); ok {
		t.Error("half a line was read")
	}
	if got := stolen([]byte("cpu  243201 320 82654 104796 2678 0 14875 40979 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")); got != 40979 {
		t.Errorf("%d ticks were stolen, want 40979", got)
	}
	if got := stolen([]byte("cpu  1 2 3 4\n")); got != 0 {
		t.Errorf("%d ticks were stolen on an old kernel", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := newReport([]string{"bootlab", "kea"})
	r.add("bootlab", values{"dora": 3000, "lost": 0}, false)
	r.add("bootlab", values{"dora": 1000}, false)
	r.add("bootlab", values{"dora": 2000}, true)
	r.add("kea", values{"dora": 1600}, false)
	rows := []row{{"dora", "new leases", false}, {"lost", "lost", true}}
	want := strings.Join([]string{
		"| | bootlab | kea | ÷ kea |", "|---|---|---|---|",
		"| new leases | 2000 [1000–3000] | 1600 | 1.25 |", "| lost ↓ | 0 | - | - |", "",
	}, "\n")
	if d := cmp.Diff(want, r.table(rows)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r.noisy["bootlab"] != 1 {
		t.Errorf("disturbed: %v", r.noisy)
	}
}

func TestFigure(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 20000: "20000", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.0123: "0.012"} {
		if got := figure(x); got != want {
			t.Errorf("figure(%v) = %s, want %s", x, got, want)
		}
	}
}

func TestNoise(t *testing.T) {
	t.Parallel()
	n := noise{foreign: 0.5, total: 2}
	if n.share() != 0.25 || (&noise{}).share() != 0 {
		t.Errorf("share %v, of nothing %v", n.share(), (&noise{}).share())
	}
	did := false
	n.during(func() { did = true })
	if !did || n.total <= 2 || n.foreign < 0.5 {
		t.Errorf("%+v, done: %t", n, did)
	}
}
