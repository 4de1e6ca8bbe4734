package configs_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// inCode returns every metric name that stands in the source as a constant.
func inCode(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`"(bootlab_[a-z0-9_]+)"`)
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		b, err := os.ReadFile(file)
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			found[m[1]] = true
		}
		return err
	})
	if err != nil || len(found) < 20 {
		t.Fatalf("%d metrics in the source (%v)", len(found), err)
	}
	return found
}

// checkExpr fails the test for a metric or a kind of event that there is not.
func checkExpr(t *testing.T, where, expr string, known map[string]bool) {
	t.Helper()
	for _, m := range regexp.MustCompile(`bootlab_[a-z0-9_]+`).FindAllString(expr, -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_bucket"), "_count"), "_sum")
		if !known[m] && !known[base] {
			t.Errorf("%s asks for %s, which nothing counts", where, m)
		}
	}
	for _, m := range regexp.MustCompile(`kind=(~?)"([^"]*)"`).FindAllStringSubmatch(expr, -1) {
		for pattern := range strings.SplitSeq(m[2], "|") {
			if m[1] == "" {
				pattern = regexp.QuoteMeta(pattern)
			}
			if strings.ContainsAny(m[2], "()") {
				pattern = m[2]
			}
			re := regexp.MustCompile("^(?:" + pattern + ")$")
			if !slices.ContainsFunc(event.Kinds(), func(k event.Kind) bool { return re.MatchString(k.String()) }) {
				t.Errorf("%s asks for kind %s, which is none", where, pattern)
			}
		}
	}
}

func TestDashboardAsksForWhatIsThere(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(dir + "/grafana/bootlab.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	known := inCode(t)
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkExpr(t, p.Title, target.Expr, known)
		}
	}
	if len(d.Panels) < 20 {
		t.Errorf("%d panels", len(d.Panels))
	}
}

func TestAlertsAskForWhatIsThere(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(dir + "/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary string }
			}
		}
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	known := inCode(t)
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			if r.Alert == "" || r.Expr == "" || r.Annotations.Summary == "" {
				t.Errorf("rule %d lacks a name, an expression or a summary: %+v", n, r)
			}
			checkExpr(t, r.Alert, r.Expr, known)
		}
	}
	if n < 5 {
		t.Errorf("%d rules", n)
	}
}
