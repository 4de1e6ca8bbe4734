package event_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A tape is a recorder that keeps its events. It has no lock: the bus never calls it concurrently, which the race detector checks.
type tape struct {
	name   string
	events []event.Event
	order  *[]string // shared: recorder and event, in order
}

func (t *tape) Record(e event.Event) {
	t.events = append(t.events, e)
	if t.order != nil {
		*t.order = append(*t.order, fmt.Sprintf("%s %d", t.name, e.Seq))
	}
}

func TestBusFills(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	recorded := &tape{}
	bus := event.NewBus(event.BusConfig{
		Now: func() time.Time { return now },
		Identify: func(e event.Event) event.Event {
			e.Gen = 7
			if e.Host == "" && e.Addr == netip.MustParseAddr("10.0.0.1") {
				e.Host, e.MAC = "a", lab.MAC{2}
			}
			return e
		},
		Recorders: []event.Recorder{recorded},
	})
	bus.Record(event.Event{Kind: event.FileServed, Addr: netip.MustParseAddr("10.0.0.1"), Bytes: 3, Seq: 99, Gen: 99, At: now.Add(time.Hour)})
	bus.Record(event.Event{Kind: event.DHCPAck, Host: "b"})
	want := []event.Event{
		{Seq: 1, At: now, Gen: 7, Kind: event.FileServed, Addr: netip.MustParseAddr("10.0.0.1"), Host: "a", MAC: lab.MAC{2}, Bytes: 3},
		{Seq: 2, At: now, Gen: 7, Kind: event.DHCPAck, Host: "b"},
	}
	if diff := cmp.Diff(want, recorded.events, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClaimedBy: a claimed request came from an address; in a conflict, the address is the one that both machines use.
func TestClaimedBy(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.0.0.1")
	for want, e := range map[string]event.Event{
		"claimed by 10.0.0.1":                 {Kind: event.FileServed, Addr: addr, Claimed: true, Reason: event.OtherMachine},
		"claimed by 10.0.0.1, perhaps forged": {Kind: event.ScriptRefused, Addr: addr, Claimed: true, Reason: event.Silent},
		"claimed":                             {Kind: event.ConfigRefused, Claimed: true},
		"":                                    {Kind: event.AddressConflict, Addr: addr, Claimed: true, Reason: event.OtherMachine},
	} {
		if got := e.ClaimedBy(); got != want {
			t.Errorf("%s: %q, want %q", e.Kind, got, want)
		}
	}
}

// TestBusOrder: however many goroutines record at once, every recorder gets every event once, in the order of its number, and each event
// reaches all recorders, in their order, before the next.
func TestBusOrder(t *testing.T) {
	t.Parallel()
	var order []string
	tapes := []*tape{{name: "first", order: &order}, {name: "second", order: &order}, {name: "third", order: &order}}
	cfg := event.BusConfig{Now: time.Now}
	for _, tp := range tapes {
		cfg.Recorders = append(cfg.Recorders, tp)
	}
	bus := event.NewBus(cfg)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				bus.Record(event.Event{Kind: event.BackendUp, Detail: fmt.Sprint(w), Bytes: int64(i)})
			}
		})
	}
	wg.Wait()
	var want []string
	for seq := 1; seq <= writers*each; seq++ {
		for _, tp := range tapes {
			want = append(want, fmt.Sprintf("%s %d", tp.name, seq))
		}
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next := map[string]int64{}
	for i, e := range tapes[0].events {
		if e.Bytes != next[e.Detail] {
			t.Fatalf("writer %s: event %d came when %d was due", e.Detail, e.Bytes, next[e.Detail])
		}
		next[e.Detail]++
		if i > 0 && e.At.Before(tapes[0].events[i-1].At) {
			t.Fatalf("event %d is older than the one before it", e.Seq)
		}
	}
}

func TestBusNeedsNow(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "BusConfig.Now") {
			t.Errorf("panic %v, want one that names BusConfig.Now", p)
		}
	}()
	event.NewBus(event.BusConfig{})
}

// TestKinds checks the table of kinds: names, stages and help texts are unique and well formed.
func TestKinds(t *testing.T) {
	t.Parallel()
	kinds := event.Kinds()
	if len(kinds) < 30 {
		t.Fatalf("%d kinds", len(kinds))
	}
	name := regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	stages := []event.Stage{
		event.StageMachine, event.StageAddress, event.StageFirmware, event.StageScript, event.StageFiles, event.StageConfig,
		event.StageInstall, event.StageBalancer, event.StageLab,
	}
	seen, helps := map[string]bool{event.Unknown.String(): true}, map[string]bool{}
	for _, k := range kinds {
		if !name.MatchString(k.String()) || seen[k.String()] {
			t.Errorf("kind %d: name %q is taken, or not like dhcp_ack", k, k)
		}
		if k.Help() == "" || helps[k.Help()] || strings.HasSuffix(k.Help(), ".") {
			t.Errorf("%v: help %q is taken, empty or ends in a full stop", k, k.Help())
		}
		if !slices.Contains(stages, k.Stage()) {
			t.Errorf("%v: stage %q is none", k, k.Stage())
		}
		seen[k.String()], helps[k.Help()] = true, true
		b, err := json.Marshal(k)
		var back event.Kind
		if err != nil || json.Unmarshal(b, &back) != nil || back != k {
			t.Errorf("%v: %s is read back as %v (%v)", k, b, back, err)
		}
	}
	var k event.Kind
	if err := k.UnmarshalText([]byte("dhcp_nonsense")); err == nil {
		t.Error("dhcp_nonsense is a kind")
	}
	if beyond := kinds[len(kinds)-1] + 1; beyond.String() != "unknown" || beyond.Help() == "" {
		t.Errorf("a kind of a later version is %v", beyond)
	}
}

// TestEveryKindIsEmitted searches the source for an emitter of each kind. Packages that only read events do not count.
func TestEveryKindIsEmitted(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("kind.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(source), "Unknown Kind = iota")
	block, _, _ = strings.Cut(block, "kinds //")
	names := strings.Fields(block)
	if len(names) != len(event.Kinds()) {
		t.Fatalf("%d names in kind.go, %d kinds", len(names), len(event.Kinds()))
	}
	emitted := emittedNames(t)
	for _, name := range names {
		if !emitted[name] {
			t.Errorf("nothing emits event.%s", name)
		}
	}
}

// TestReasons: each reason is a word, is described, and is given by something that emits events.
func TestReasons(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := regexp.MustCompile(`(?m)^\t(\w+) +Reason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(constants) != len(event.Reasons()) {
		t.Errorf("%d constants, %d reasons in the table", len(constants), len(event.Reasons()))
	}
	emitted := emittedNames(t)
	for _, c := range constants {
		if help := event.Reason(c[2]).Help(); help == "" || strings.HasSuffix(help, ".") {
			t.Errorf("%s: help %q", c[2], help)
		}
		if !emitted[c[1]] {
			t.Errorf("nothing gives event.%s", c[1])
		}
	}
	if help := event.Reason("of_another_version").Help(); help != "" {
		t.Errorf("an unknown reason is %q", help)
	}
}

// emittedNames returns what of package event the source of its emitters names.
var emittedNames = func() func(*testing.T) map[string]bool {
	var once sync.Once
	names := map[string]bool{}
	return func(t *testing.T) map[string]bool {
		t.Helper()
		once.Do(func() {
			for _, name := range regexp.MustCompile(`\bevent\.[A-Z]\w+`).FindAllString(emitters(t, "../../.."), -1) {
				names[strings.TrimPrefix(name, "event.")] = true
			}
		})
		return names
	}
}()

// emitters returns the source of all packages below root that may emit events.
func emitters(t *testing.T, root string) string {
	t.Helper()
	readers := []string{"internal/observe/event", "internal/observe/diagnosis", "internal/observe/timeline", "internal/observe/metrics", "internal/observe/logs", "internal/api", "cmd", "test", "bin"}
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (slices.Contains(readers, filepath.ToSlash(rel)) || len(rel) > 1 && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}
