package power_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/power"
)

func netBoot(ctx context.Context, b *lab.BMC) error {
	_, err := power.Do(ctx, b, power.NetBoot)
	return err
}

// A controller is a fake Redfish service that answers as sushy-tools' emulator, iDRAC and iLO do.
type controller struct {
	systems   int
	power     string
	targets   []string
	resets    []string
	etag      string // required in If-Match unless empty
	elsewhere string // link of the collection; empty: its own

	done []string // changes
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
		Boot struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget, BootSourceOverrideMode string }
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
	c.done = append(c.done, strings.TrimSpace(body.Boot.BootSourceOverrideEnabled+" "+body.Boot.BootSourceOverrideTarget+" "+body.Boot.BootSourceOverrideMode))
}

// TestCycle: with every set of features the machine boots from the network once, or the error says why not.
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
		{name: "no allowable values", c: controller{systems: 1, power: "On"}, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "only HTTP boot", c: controller{systems: 1, power: "On", targets: []string{"Hdd", "UefiHttp"}}, want: []string{"Once UefiHttp", "ForceRestart"}},
		{name: "no restart, but off and on", c: controller{systems: 1, power: "On", resets: []string{"On", "ForceOff"}}, want: []string{"Once Pxe", "ForceOff", "On"}},
		{name: "power cycle", c: controller{systems: 1, power: "On", resets: []string{"On", "ForceOff", "PowerCycle"}}, want: []string{"Once Pxe", "PowerCycle"}},
		{name: "requires If-Match", c: controller{systems: 1, power: "On", etag: `W/"570254F2"`}, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "one of several", c: controller{systems: 3, power: "On"}, path: systemPath, want: []string{"Once Pxe", "ForceRestart"}},
		{name: "which of several", c: controller{systems: 3, power: "On"}, err: "it has 3 computer systems: set bmc.redfish to the URL of one, https://"},
		{name: "none", c: controller{power: "On"}, err: "it has 0 computer systems"},
		{name: "no network boot", c: controller{systems: 1, power: "On", targets: []string{"Hdd"}}, err: "it cannot boot from the network; boot targets: Hdd"},
		{name: "no restart", c: controller{systems: 1, power: "On", resets: []string{"Nmi"}}, want: []string{"Once Pxe"}, err: "it cannot restart the machine; reset types: Nmi"},
		{name: "message made printable", c: controller{systems: 1, power: "On", targets: []string{"Pxe", "broken"}}, err: "set the next boot to Pxe: 409 Conflict: the BIOS [2J is busy"},
		{name: "wrong password", c: controller{systems: 1}, user: "root", err: "check bmc.username and bmc.password_file"},
		{name: "link to another machine", c: controller{systems: 1, elsewhere: "https://evil.example/redfish/v1/Systems"}, err: "is no path on this controller"},
		{name: "link to another machine without a scheme", c: controller{systems: 1, elsewhere: "//evil.example/x"}, err: "is no path on this controller"},
		{name: "empty link", c: controller{systems: 1, elsewhere: " "}, err: "is no path on this controller"},
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
			err := netBoot(t.Context(), b)
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

// TestDo: power on, off and cycle with every set of features, and no change of the next boot.
func TestDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		c      controller
		action power.Action
		state  power.State
		want   []string
		err    string
	}{
		{"status on", controller{power: "On"}, power.Status, power.StateOn, nil, ""},
		{"status off", controller{power: "Off"}, power.Status, power.StateOff, nil, ""},
		{"status in between", controller{power: "PoweringOn"}, power.Status, "poweringon", nil, ""},
		{"no status", controller{}, power.Status, "", nil, "it does not say whether the machine is on"},
		{"on", controller{power: "Off"}, power.On, power.StateOn, []string{"On"}, ""},
		{"on already", controller{power: "On"}, power.On, power.StateOn, nil, ""},
		{"on by force only", controller{power: "Off", resets: []string{"ForceOn", "ForceOff"}}, power.On, power.StateOn, []string{"ForceOn"}, ""},
		{"off", controller{power: "On"}, power.Off, power.StateOff, []string{"ForceOff"}, ""},
		{"off already", controller{power: "Off"}, power.Off, power.StateOff, nil, ""},
		{"off, not at all", controller{power: "On", resets: []string{"On"}}, power.Off, "", nil, "it cannot power the machine off; reset types: On"},
		{"cycle", controller{power: "On"}, power.Reset, power.StateOn, []string{"ForceRestart"}, ""},
		{"cycle what is off", controller{power: "Off"}, power.Reset, power.StateOn, []string{"On"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.c.systems = 1
			s := httptest.NewTLSServer(&tt.c)
			defer s.Close()
			b := &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin"), Insecure: true}
			state, err := power.Do(t.Context(), b, tt.action)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), s.URL)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if state != tt.state {
				t.Errorf("state %q, want %q", state, tt.state)
			}
			if diff := cmp.Diff(tt.want, tt.c.done); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTrust: a controller with an untrusted certificate does not get the password, unless bmc.insecure is true.
func TestTrust(t *testing.T) {
	t.Parallel()
	c := &controller{systems: 1, power: "On"}
	s := httptest.NewTLSServer(c)
	defer s.Close()
	b := &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin")}
	err := netBoot(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "set bmc.ca_file to its certificate, or bmc.insecure: true to accept any") || c.done != nil {
		t.Errorf("error %v, done %v", err, c.done)
	}
	b.Insecure = true
	if err := netBoot(t.Context(), b); err != nil || len(c.done) != 2 {
		t.Errorf("insecure: %v, done %v", err, c.done)
	}
	b = &lab.BMC{Redfish: s.URL, PasswordFile: filepath.Join(t.TempDir(), "none")}
	if err := netBoot(t.Context(), b); err == nil || !strings.Contains(err.Error(), "read bmc.password_file") {
		t.Errorf("no password file: %v", err)
	}
	b = &lab.BMC{Redfish: s.URL, CAFile: file(t, "nothing")}
	if err := netBoot(t.Context(), b); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("no certificate: %v", err)
	}
}

// TestOldController: TLS 1.2 with RSA key exchange is supported.
func TestOldController(t *testing.T) {
	t.Parallel()
	c := &controller{systems: 1, power: "On"}
	s := httptest.NewUnstartedServer(c)
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}
	s.StartTLS()
	defer s.Close()
	b := &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin"), CAFile: file(t, certificate(s))}
	if err := netBoot(t.Context(), b); err != nil || len(c.done) != 2 {
		t.Errorf("%v, done %v", err, c.done)
	}
}

// TestRedirect: a redirect to another machine is refused, which would get the password.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	err := netBoot(t.Context(), &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin")})
	if err == nil || !strings.Contains(err.Error(), "it is another machine") {
		t.Errorf("error %v", err)
	}
}

// TestGarbage: an answer that is no Redfish is an error, however long it is.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "<html>", "[]", `{"Systems": 7}`, `{"Systems": {"@odata.id": ["x"]}}`, strings.Repeat("{", 8<<20)} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if err := netBoot(t.Context(), &lab.BMC{Redfish: s.URL}); err == nil || len(err.Error()) > 1000 {
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

// TestBoot: the boot device is set, and the power stays as it is.
func TestBoot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		device   power.Device
		how      power.How
		firmware lab.Firmware
		want     string
		err      string
	}{
		{"network once", power.DeviceNetwork, power.Once, "", "Once Pxe", ""},
		{"disk of UEFI, always", power.DeviceDisk, power.Always, lab.FirmwareUEFI, "Continuous Hdd UEFI", ""},
		{"default", power.DeviceDefault, power.Always, lab.FirmwareBIOS, "Disabled None", ""},
		{"CD", power.DeviceCD, power.Once, "", "", "it cannot boot from the cd; boot targets: Pxe, Hdd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &controller{systems: 1, power: "On", targets: []string{"Pxe", "Hdd", "None"}, etag: `W/"1"`}
			s := httptest.NewServer(c)
			defer s.Close()
			err := power.Boot(t.Context(), &lab.BMC{Redfish: s.URL, Username: "admin", PasswordFile: file(t, "calvin"), Firmware: tt.firmware}, tt.device, tt.how)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if got := strings.Join(c.done, ", "); got != tt.want {
				t.Errorf("done %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSilentController: one that accepts connections and never answers costs what a dead one costs, and is named.
func TestSilentController(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second) // below the time of a whole power cycle
	defer cancel()
	_, err = power.Do(ctx, &lab.BMC{Redfish: "http://" + l.Addr().String()}, power.Status)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || ctx.Err() != nil {
		t.Errorf("error %v (%v)", err, ctx.Err())
	}
}
