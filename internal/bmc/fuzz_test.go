package bmc

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// FuzzSystem asserts of whatever a controller says: what is asked of it is one of few words that we know, and what is told
// to people is short and printable.
func FuzzSystem(f *testing.F) {
	for _, seed := range []string{
		`{"PowerState":"On","Boot":{"BootSourceOverrideTarget@Redfish.AllowableValues":["Pxe"]},"Actions":{"#ComputerSystem.Reset":{"target":"/x","ResetType@Redfish.AllowableValues":["On","ForceOff"]}}}`,
		`{"PowerState":"Off"}`, `{"Boot":{"BootSourceOverrideTarget@Redfish.AllowableValues":["\u001b[2J"]}}`, `{"error":{"message":"\n\u202e","@Message.ExtendedInfo":[{"Message":"x"}]}}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tellable(t, complaint(b))
		var s system
		if json.Unmarshal(b, &s) != nil {
			return
		}
		target, err := s.bootTarget()
		if err != nil {
			tellable(t, err.Error())
		} else if target != "Pxe" && target != "UefiHttp" {
			t.Fatalf("boots from %q", target)
		}
		resets, err := s.resets()
		if err != nil {
			tellable(t, err.Error())
		}
		if how := strings.Join(resets, " "); err == nil && !strings.Contains("|On|ForceRestart|PowerCycle|ForceOff On|GracefulRestart|", "|"+how+"|") {
			t.Fatalf("restarts by %q", how)
		}
	})
}

func tellable(t *testing.T, s string) {
	t.Helper()
	if len(s) > maxMessage+100 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("told: %q", s)
	}
}
