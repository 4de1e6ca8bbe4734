package httpd

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/api"
)

func (a *Admin) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// readyz is open to anyone, so it names servers and nothing of the lab, but for callers that are trusted. A refused reload does not make it unready: the last
// good lab is served.
func (a *Admin) readyz(w http.ResponseWriter, r *http.Request, trusted bool) {
	s := a.deps.Backend.Status(r.Context())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !s.Ready() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if len(s.Servers) == 0 {
		fmt.Fprintln(w, "starting: no server answers yet")
	}
	for _, srv := range s.Servers {
		text := "ok"
		switch state := s.StateOf(srv); state {
		case api.StatePartly, api.StateDown:
			text = strings.TrimSuffix(string(state)+": "+srv.Cause, ": ")
		case api.StateDegraded:
			text = string(state) + ": " + strings.Join(s.Degraded(srv), "; ")
		}
		fmt.Fprintf(w, "%s: %s\n", srv.Name, text)
	}
	for _, kind := range api.ConditionKinds() {
		if all, failed := s.ConditionsOf(kind); len(all) > 0 {
			fmt.Fprintf(w, "%ss: %s\n", kind, conditionsText(len(all), failed, trusted))
		}
	}
	if unreached := s.Unreached(); len(unreached) > 0 {
		fmt.Fprintln(w, "addresses: degraded:", unreachedText(unreached, trusted))
	} else if len(s.Addresses) > 0 {
		fmt.Fprintln(w, "addresses: ok")
	}
	if len(s.Balancers) > 0 {
		fmt.Fprintln(w, "balancers:", balancersText(s.Balancers, trusted))
	}
	switch {
	case len(s.Store.Causes) > 0:
		fmt.Fprintf(w, "store: degraded: %s (bootlab status says what to do)\n", strings.Join(s.Store.Causes, "; "))
	case s.Store.Folder != "":
		fmt.Fprintln(w, "store: ok")
	}
	if s.StateLost != "" {
		fmt.Fprintln(w, "state: install states were lost; no machine is installed until an admin says so (bootlab state says what happened, and how to put the state back)")
	}
	if s.Reload.Err != "" {
		fmt.Fprintln(w, "reload: the last one was refused, the running lab stays in force (bootlab status shows the reason)")
	}
}

// conditionsText says which of some conditions are not good; only trusted callers learn their names.
func conditionsText(all int, failed []api.Condition, trusted bool) string {
	switch {
	case len(failed) == 0:
		return api.ConditionOK
	case !trusted:
		return fmt.Sprintf(api.ConditionFailed+": %d of %d (bootlab status says which)", len(failed), all)
	}
	var texts, names []string
	for i, c := range failed {
		if names = append(names, c.Name); i+1 < len(failed) && c.SameProblem(failed[i+1]) {
			continue
		}
		texts, names = append(texts, strings.Join(names, ", ")+": "+c.Problem), nil
	}
	return api.ConditionFailed + ": " + strings.Join(texts, "; ")
}

// unreachedText says why clients do not reach this machine at some addresses. Only trusted callers learn which they are.
func unreachedText(unreached []api.Address, trusted bool) string {
	var texts []string
	counts := map[string]int{}
	for _, a := range unreached {
		text := a.Addr.String() + " is " + a.Short()
		if do := cmp.Or(a.Command, a.Problem); do != "" {
			text += " (" + do + ")"
		}
		texts = append(texts, text)
		counts[a.Short()]++
	}
	if trusted {
		return strings.Join(texts, "; ")
	}
	texts = nil
	for _, short := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[short], short))
	}
	return strings.Join(texts, "; ") + " (bootlab status says which)"
}

// balancersText says which balancers have no healthy backend; only trusted callers learn their names.
func balancersText(all []api.BalancerHealth, trusted bool) string {
	var empty []string
	for _, b := range all {
		if b.Empty() {
			empty = append(empty, b.Name+": "+b.String())
		}
	}
	switch {
	case len(empty) == 0:
		return "ok"
	case trusted:
		return "degraded: " + strings.Join(empty, "; ")
	}
	return fmt.Sprintf("degraded: %d of %d without a healthy backend (bootlab status says which)", len(empty), len(all))
}
