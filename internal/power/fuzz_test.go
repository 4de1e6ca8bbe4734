package power

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// FuzzSystem: whatever a controller answers, only known boot targets and reset types are sent, and errors are short and
// printable.
func FuzzSystem(f *testing.F) {
	for _, seed := range []string{
		`{"PowerState":"On","Boot":{"BootSourceOverrideTarget@Redfish.AllowableValues":["Pxe"]},"Actions":{"#ComputerSystem.Reset":{"target":"/x","ResetType@Redfish.AllowableValues":["On","ForceOff"]}}}`,
		`{"PowerState":"Off"}`, `{"Boot":{"BootSourceOverrideTarget@Redfish.AllowableValues":["\u001b[2J"]}}`, `{"error":{"message":"\n\u202e","@Message.ExtendedInfo":[{"Message":"x"}]}}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkPrintable(t, errorMessage(b))
		var s system
		if json.Unmarshal(b, &s) != nil {
			return
		}
		target, err := s.bootTarget(DeviceNetwork)
		if err != nil {
			checkPrintable(t, err.Error())
		} else if target != "Pxe" && target != "UefiHttp" {
			t.Fatalf("boots from %q", target)
		}
		resets, err := s.resets()
		if err != nil {
			checkPrintable(t, err.Error())
		}
		if how := strings.Join(resets, " "); err == nil && !strings.Contains("|On|ForceRestart|PowerCycle|ForceOff On|GracefulRestart|", "|"+how+"|") {
			t.Fatalf("restarts by %q", how)
		}
	})
}

func checkPrintable(t *testing.T, s string) {
	t.Helper()
	if len(s) > maxMessage+100 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("error message %q", s)
	}
}
