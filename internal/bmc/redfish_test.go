package bmc_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/bmc"
	"github.com/bootlab/bootlab/internal/lab"
)

// A controller answers as Redfish services do: sushy-tools' emulator, iDRAC and iLO say the same in these few places.
type controller struct {
	systems   int
	power     string
	targets   []string
	resets    []string
	etag      string // asked for where it is set
	elsewhere string // what the collection's link is; empty: its own

	done []string // what changed it
}

const systemPath = "/redfish/v1/Systems/437XR1138R2"

func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	switch {
	case r.URL.Path == "/redfish/v1/" && r.Method == http.MethodGet: // open to all, DSP0266 section 13.3
		answer(w, map[string]any{"@odata.id": "/redfish/v1/", "Systems": map[string]string{"@odata.id": c.collection()}})
	case user != "admin" || password != "calvin":
		w.WriteHeader(http.StatusUnauthorized)
		answer(w, map[string]any{"error": map[string]any{"code": "Base.1.8.GeneralError", "message": "while attempting to establish a connection"}})
	case r.URL.Path == "/redfish/v1/Systems":
		c.members(w)
	case r.URL.Path == systemPath && r.Method == http.MethodGet:
		answer(w, c.system())
	case r.URL.Path == systemPath && r.Method == http.MethodPatch:
		c.patch(w, r)
	case r.URL.Path == systemPath+"/Actions/ComputerSystem.Reset" && r.Method == http.MethodPost:
		var body struct{ ResetType string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		c.done = append(c.done, body.ResetType)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func (c *controller) collection() string {
	if c.elsewhere != "" {
		return c.elsewhere
	}
	return "/redfish/v1/Systems"
}

func (c *controller) members(w http.ResponseWriter) {
	members := []map[string]string{{"@odata.id": systemPath}}
	for i := 1; i < c.systems; i++ {
		members = append(members, map[string]string{"@odata.id": fmt.Sprint(systemPath, i)})
	}
	answer(w, map[string]any{"Members": members[:c.systems], "Members@odata.count": c.systems})
}

func (c *controller) system() map[string]any {
	boot := map[string]any{"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI"}
	if c.targets != nil {
		boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = c.targets
	}
	reset := map[string]any{"target": systemPath + "/Actions/ComputerSystem.Reset"}
	if c.resets != nil {
		reset["ResetType@Redfish.AllowableValues"] = c.resets
	}
	return map[string]any{"@odata.id": systemPath, "@odata.etag": c.etag, "PowerState": c.power, "Boot": boot, "Actions": map[string]any{"#ComputerSystem.Reset": reset}}
}

func (c *controller) patch(w http.ResponseWriter, r *http.Request) {
	if c.etag != "" && r.Header.Get("If-Match") != c.etag {
		w.WriteHeader(http.StatusPreconditionRequired)
		return
	}
	var body struct {
		Boot struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget string }
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	if c.targets != nil && !slices.Contains(c.targets, body.Boot.BootSourceOverrideTarget) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if body.Boot.BootSourceOverrideTarget == "Pxe" && slices.Contains(c.targets, "broken") {
		w.WriteHeader(http.StatusConflict)
		answer(w, map[string]any{"error": map[string]any{"@Message.ExtendedInfo": []any{map[string]string{"Message": "the BIOS\x1b[2J is\nbusy"}}}})
		return
	}
	c.done = append(c.done, body.Boot.BootSourceOverrideEnabled+" "+body.Boot.BootSourceOverrideTarget)
}

// TestCycle: whatever a controller can do, its machine boots from the network once and now, or the error says why not.
func TestCycle(t *testing.T) {
	t.Parallel()
	all := []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"}
	for _, tt := range []struct {
		name string
		c    controller
		path string // behind the controller's URL
		user string
		want []string
		err  string
	}{
		{name: "as sushy-tools", c: controller{systems: 1, power: "On", targets: []string{"Pxe", "Cd", "Hdd"}, resets: all}, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "off", c: controller{systems: 1, power: "Off", resets: all}, want: []string{"Once Pxe", "On"}},
		{name: "says nothing of what it can", c: controller{systems: 1, power: "On"}, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "only HTTP boot", c: controller{systems: 1, power: "On", targets: []string{"Hdd", "UefiHttp"}}, want: []string{"Once UefiHttp", "ForceRestart"}},
		{name: "no restart, but off and on", c: controller{systems: 1, power: "On", resets: []string{"On", "ForceOff"}}, want: []string{"Once Pxe", "ForceOff", "On"}},
		{name: "power cycle", c: controller{systems: 1, power: "On", resets: []string{"On", "ForceOff", "PowerCycle"}}, want: []string{"Once Pxe", "PowerCycle"}},
		{name: "insists on If-Match", c: controller{systems: 1, power: "On", etag: `W/"570254F2"`}, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "one of several", c: controller{systems: 3, power: "On"}, path: systemPath, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "which of several", c: controller{systems: 3, power: "On"}, err: "it has 3 computer systems: want bmc.redfish to name one, https://"},
		{name: "none", c: controller{power: "On"}, err: "it has 0 computer systems"},
		{name: "no network boot", c: controller{systems: 1, power: "On", targets: []string{"Hdd"}}, err: "it cannot boot from the network, but from Hdd"},
		{name: "no restart", c: controller{systems: 1, power: "On", resets: []string{"Nmi"}}, want: []string{"Once Pxe"}, err: "it cannot restart the machine, but Nmi"},
		{name: "a refusal, printable", c: controller{systems: 1, power: "On", targets: []string{"Pxe", "broken"}}, err: "set the next boot to Pxe: 409 Conflict: the BIOS [2J is busy"},
		{name: "wrong password", c: controller{systems: 1}, user: "root", err: "look at bmc.username and bmc.password_file"},
		{name: "sends us elsewhere", c: controller{systems: 1, elsewhere: "https://evil.example/redfish/v1/Systems"}, err: "is no path of this controller"},
		{name: "sends us elsewhere, in short", c: controller{systems: 1, elsewhere: "//evil.example/x"}, err: "is no path of this controller"},
		{name: "names nothing", c: controller{systems: 1, elsewhere: " "}, err: "is no path of this controller"},
		{name: "no Redfish at all", path: "/nothing/Systems/1", err: "404 Not Found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewTLSServer(&tt.c)
			defer s.Close()
			b := &lab.BMC{Redfish: s.URL + tt.path, Username: tt.user, PasswordFile: file(t, "calvin\n"), CAFile: file(t, certificate(s))}
			if b.Username == "" {
				b.Username = "admin"
			}
			err := bmc.Cycle(t.Context(), b)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if err != nil && strings.Contains(err.Error(), "calvin") {
				t.Errorf("the error holds the password: %v", err)
			}
			if diff := cmp.Diff(tt.want, tt.c.done); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTrust: a certificate that nobody vouches for gets no password, unless the lab file says so.
func TestTrust(t *testing.T) {
	t.Parallel()
	c := &controller{systems: 1, power: "On"}
	s := httptest.NewTLSServer(c)
	defer s.Close()
	b := &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin")}
	err := bmc.Cycle(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "name its certificate in bmc.ca_file, or take any with bmc.insecure: true") || c.done != nil {
		t.Errorf("error %v, done %v", err, c.done)
	}
	b.Insecure = true
	if err := bmc.Cycle(t.Context(), b); err != nil || len(c.done) != 2 {
		t.Errorf("insecure: %v, done %v", err, c.done)
	}
	b = &lab.BMC{Redfish: s.URL, PasswordFile: filepath.Join(t.TempDir(), "none")}
	if err := bmc.Cycle(t.Context(), b); err == nil || !strings.Contains(err.Error(), "read the password of the controller") {
		t.Errorf("a password that is not there: %v", err)
	}
	b = &lab.BMC{Redfish: s.URL, CAFile: file(t, "nothing")}
	if err := bmc.Cycle(t.Context(), b); err == nil || !strings.Contains(err.Error(), "holds no certificate: want PEM") {
		t.Errorf("no certificate: %v", err)
	}
}

// TestOldController: one that knows TLS 1.2 with RSA alone is no stranger.
func TestOldController(t *testing.T) {
	t.Parallel()
	c := &controller{systems: 1, power: "On"}
	s := httptest.NewUnstartedServer(c)
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}
	s.StartTLS()
	defer s.Close()
	b := &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin"), CAFile: file(t, certificate(s))}
	if err := bmc.Cycle(t.Context(), b); err != nil || len(c.done) != 2 {
		t.Errorf("%v, done %v", err, c.done)
	}
}

// TestRedirect: the password does not follow a controller that sends us to another.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	err := bmc.Cycle(t.Context(), &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin")})
	if err == nil || !strings.Contains(err.Error(), "which is not followed") {
		t.Errorf("error %v", err)
	}
}

// TestGarbage: what is no Redfish ends with an error, however much of it there is.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "<html>", "[]", `{"Systems": 7}`, `{"Systems": {"@odata.id": ["x"]}}`, strings.Repeat("{", 8<<20)} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if err := bmc.Cycle(t.Context(), &lab.BMC{Redfish: s.URL}); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.20q: %.300v", body, err)
		}
		s.Close()
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
