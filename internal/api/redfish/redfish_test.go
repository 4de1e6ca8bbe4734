package redfish_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api/redfish"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

// machines are virtual machines in memory.
type machines struct {
	mu    sync.Mutex
	m     redfish.Machine
	fail  error
	takes time.Duration // how long Insert and Reset take
	calls []string
}

func (f *machines) List(context.Context) []redfish.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []redfish.Machine{f.m}
}

func (f *machines) Get(ctx context.Context, name string) (redfish.Machine, bool) {
	return f.List(ctx)[0], name == "m1"
}

func (f *machines) note(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.fail
}

func (f *machines) Reset(ctx context.Context, name string, how redfish.ResetType) error {
	if err := pause.For(ctx, f.takes); err != nil {
		return err
	}
	return f.note("%s %s", how, name)
}

func (f *machines) SetBoot(_ context.Context, name string, b redfish.Boot) error {
	f.mu.Lock()
	f.m.Boot = b
	f.mu.Unlock()
	return f.note("boot %s %v", name, b)
}

func (f *machines) Insert(ctx context.Context, name string, i redfish.Image) error {
	if err := pause.For(ctx, f.takes); err != nil {
		return err
	}
	return f.note("insert %s %s %s", name, i.URL, i.User)
}

func (f *machines) Eject(_ context.Context, name string) error { return f.note("eject %s", name) }

func (f *machines) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := strings.Join(f.calls, ", ")
	f.calls = nil
	return calls
}

// A service is one that a test asks.
type service struct {
	t        *testing.T
	handler  *redfish.Service
	machines *machines
	now      time.Time
	lab      *lab.Lab
	dir      string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, now: time.Now(), dir: t.TempDir(), machines: &machines{m: redfish.Machine{
		Name: "m1", UUID: "07e3805e-2d36-541e-877e-4c3046efb8d9", Power: redfish.PowerOn, CPUs: 2, Memory: 1 << 30, Disks: []lab.Size{1 << 30},
		NICs: []lab.MAC{{0x52, 0x54, 0, 0, 1, 1}}, Firmware: lab.FirmwareUEFI,
	}}}
	s.lab = &lab.Lab{Name: "test", Redfish: lab.Redfish{}}
	for _, role := range []lab.RedfishRole{lab.RedfishAdministrator, lab.RedfishOperator, lab.RedfishReadOnly} {
		file := filepath.Join(s.dir, string(role))
		if err := os.WriteFile(file, []byte("password of "+string(role)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.lab.Redfish.Accounts = append(s.lab.Redfish.Accounts, lab.RedfishAccount{Name: string(role), PasswordFile: file, Role: role})
	}
	h, err := redfish.New(redfish.Config{}, redfish.Deps{
		Lab: func() *lab.Lab { return s.lab }, Machines: s.machines, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
		Own: func(host string, port uint16) bool { return host == "example.com" && (port == 0 || port == 8443) }, // as httptest's requests have it
		Now: func() time.Time { return s.now }, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h
	return s
}

// A reply is an answer of the service.
type reply struct {
	status int
	header http.Header
	body   string
	json   map[string]any
}

// ask sends a request as a user (a role); empty: nobody. header is "Name: value" each.
func (s *service) ask(user, method, path, body string, header ...string) reply {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	if user != "" {
		r.SetBasicAuth(user, "password of "+user)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	a := reply{status: w.Code, header: w.Header(), body: w.Body.String()}
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && method != http.MethodHead {
		if err := json.Unmarshal(w.Body.Bytes(), &a.json); err != nil {
			s.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	if a.header.Get("OData-Version") != "4.0" {
		s.t.Errorf("%s %s: no OData-Version", method, path)
	}
	if a.status >= 400 && !strings.Contains(a.body, `"@Message.ExtendedInfo"`) {
		s.t.Errorf("%s %s: %d without @Message.ExtendedInfo: %s", method, path, a.status, a.body)
	}
	return a
}

// TestEveryLinkLeadsSomewhere follows all links from the service root: each resource is where it says that it is, has a type, an ETag
// that it obeys, and needs a login unless the standard says otherwise.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	s := newService(t)
	free := map[string]bool{"/redfish/v1/": true}
	seen := map[string]bool{}
	var visit func(path string)
	var follow func(v any)
	follow = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if path, ok := v["@odata.id"].(string); ok {
				visit(path)
			}
			for _, field := range v {
				follow(field)
			}
		case []any:
			for _, item := range v {
				follow(item)
			}
		}
	}
	visit = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		a := s.ask("readonly", "GET", path, "")
		if a.status != 200 || a.json["@odata.id"] != path || a.json["@odata.type"] == nil || a.json["Name"] == nil || a.json["@odata.etag"] != a.header.Get("ETag") {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
		if again := s.ask("readonly", "GET", strings.TrimSuffix(path, "/")+"/", "", "If-None-Match: W/"+a.header.Get("ETag")); again.status != 304 {
			t.Errorf("GET %s/ with its ETag: %d", path, again.status)
		}
		if head := s.ask("readonly", "HEAD", path, ""); head.status != 200 || head.body != "" {
			t.Errorf("HEAD %s: %d %q", path, head.status, head.body)
		}
		if nobody := s.ask("", "GET", path, ""); (nobody.status == 401) == free[path] {
			t.Errorf("GET %s without a login: %d", path, nobody.status)
		}
		if put := s.ask("administrator", "PUT", path, "{}"); put.status != 405 || !strings.HasPrefix(put.header.Get("Allow"), "GET, HEAD") {
			t.Errorf("PUT %s: %d, Allow %q", path, put.status, put.header.Get("Allow"))
		}
		follow(a.json)
	}
	visit("/redfish/v1/")
	if len(seen) < 25 {
		t.Errorf("%d resources only: %v", len(seen), seen)
	}
	for _, path := range []string{"/redfish", "/redfish/v1/odata", "/redfish/v1/$metadata"} {
		if a := s.ask("", "GET", path, ""); a.status != 200 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

const system = "/redfish/v1/Systems/m1"

// TestChanges: each change does what it says, and each wrong one gets its own message and changes nothing.
func TestChanges(t *testing.T) {
	t.Parallel()
	const reset, cd = system + "/Actions/ComputerSystem.Reset", "/redfish/v1/Managers/m1/VirtualMedia/Cd/Actions/VirtualMedia."
	for _, tt := range []struct {
		user, method, path, body string
		status                   int
		id, calls                string
	}{
		{"operator", "POST", reset, `{"ResetType": "ForceOff"}`, 204, "", "ForceOff m1"},
		{"readonly", "POST", reset, `{"ResetType": "ForceOff"}`, 403, "InsufficientPrivilege", ""},
		{"", "POST", reset, `{"ResetType": "ForceOff"}`, 401, "NoValidSession", ""},
		{"operator", "POST", reset, `{"ResetType": "Nmi"}`, 400, "ActionParameterValueNotInList", ""},
		{"operator", "POST", reset, `{"ResetType": 1}`, 400, "ActionParameterValueNotInList", ""},
		{"operator", "POST", reset, `{"Reset": "On"}`, 400, "ActionParameterUnknown", ""},
		{"operator", "POST", reset, ``, 400, "ActionParameterMissing", ""},
		{"operator", "POST", reset, `{`, 400, "MalformedJSON", ""},
		{"operator", "POST", reset, `null`, 400, "MalformedJSON", ""},
		{"operator", "POST", strings.Replace(reset, "m1", "m2", 1), `{"ResetType": "On"}`, 404, "ResourceMissingAtURI", ""},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once", "BootSourceOverrideMode": "UEFI"}}`, 200, "", "boot m1 {Cd false}"},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Continuous"}}`, 200, "", "boot m1 {Hdd true}"},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideEnabled": "Disabled"}}`, 200, "", "boot m1 {None false}"},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "UefiHttp", "HttpBootUri": "http://x/a.iso"}}`, 200, "", "insert m1 http://x/a.iso , boot m1 {Cd false}"},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "UefiHttp", "HttpBootUri": "file:///etc/shadow"}}`, 400, "PropertyValueFormatError", ""},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideMode": "Legacy"}}`, 400, "PropertyValueNotInList", ""},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "Floppy"}}`, 400, "PropertyValueNotInList", ""},
		{"operator", "PATCH", system, `{"Boot": {"BootSourceOverrideTarget": 7}}`, 400, "PropertyValueTypeError", ""},
		{"operator", "PATCH", system, `{"Boot": {"BootOrder": ["a"]}}`, 400, "PropertyUnknown", ""},
		{"operator", "PATCH", system, `{"Boot": 7}`, 400, "PropertyValueTypeError", ""},
		{"operator", "PATCH", system, `{"PowerState": "On"}`, 400, "PropertyNotWritable", ""},
		{"operator", "PATCH", system, `{"Color": "red"}`, 400, "PropertyUnknown", ""},
		{"operator", "PATCH", system, `{}`, 400, "MalformedJSON", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Image": "https://x/a.iso", "UserName": "u", "Password": "p", "Inserted": true, "TransferProtocolType": "HTTPS"}`, 204, "", "insert m1 https://x/a.iso u"},
		{"operator", "POST", cd + "InsertMedia", `{"Image": "nfs://x/a.iso"}`, 400, "ActionParameterValueFormatError", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Image": "file:///etc/shadow"}`, 400, "ActionParameterValueFormatError", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Image": null}`, 400, "ActionParameterValueTypeError", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Inserted": true}`, 400, "ActionParameterMissing", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Image": "http://x/a.iso", "WriteProtected": false}`, 400, "ActionParameterValueNotInList", ""},
		{"operator", "POST", cd + "InsertMedia", `{"Image": "http://x/a.iso", "Speed": 2}`, 400, "ActionParameterUnknown", ""},
		{"operator", "POST", cd + "EjectMedia", `{}`, 204, "", "eject m1"},
		{"operator", "POST", "/redfish/v1/Systems/m1/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia", ``, 204, "", "eject m1"},
		{"operator", "POST", reset, strings.Repeat(" ", 1<<17), 413, "GeneralError", ""},
	} {
		s := newService(t)
		a := s.ask(tt.user, tt.method, tt.path, tt.body)
		if a.status != tt.status || tt.id != "" && !strings.Contains(a.body, `"Base.1.16.`+tt.id+`"`) {
			t.Errorf("%s %s %.80s: %d %s, want %d %s", tt.method, tt.path, tt.body, a.status, a.body, tt.status, tt.id)
		}
		if calls := s.machines.take(); calls != tt.calls {
			t.Errorf("%s %s %.80s: calls %q, want %q", tt.method, tt.path, tt.body, calls, tt.calls)
		}
		if place := "hosts.m1.vm.firmware: uefi"; strings.Contains(tt.body, "Legacy") && !strings.Contains(a.body, place) {
			t.Errorf("%s: the answer lacks the place in the lab file, %q", a.body, place)
		}
	}
}

// pipes is a listener of connections in memory, whose deadlines follow the clock of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// served runs the service with a clock that stands still while anything works. post sends a request to it and returns the status;
// stop ends the service and returns how long that took.
func (s *service) served(t *testing.T, test func(post func(path, body string) int, stop func() time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- s.handler.Serve(ctx, l) }()
		client, server := net.Pipe()
		l.conns <- server
		test(func(path, body string) int {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
			r.SetBasicAuth("operator", "password of operator")
			go func() { _ = r.Write(client) }()
			resp, err := http.ReadResponse(bufio.NewReader(client), r)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode
		}, func() time.Duration {
			start := time.Now()
			_ = client.Close()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			return time.Since(start)
		})
	})
}

// TestInsertTakesMinutes: the limit of the time in which a request must arrive is none of the time until it is answered.
func TestInsertTakesMinutes(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.machines.takes = 10 * time.Minute
	s.served(t, func(post func(string, string) int, stop func() time.Duration) {
		if status := post(system+"/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", `{"Image": "http://x/a.iso"}`); status != http.StatusNoContent {
			t.Errorf("status %d", status)
		}
		stop()
	})
}

// TestStopDuringRestart: the service does not wait for a system that takes its time to shut down.
func TestStopDuringRestart(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.machines.takes = 5 * time.Minute
	s.served(t, func(post func(string, string) int, stop func() time.Duration) {
		if status := post(system+"/Actions/ComputerSystem.Reset", `{"ResetType": "GracefulRestart"}`); status != http.StatusNoContent {
			t.Errorf("status %d", status)
		}
		if took := stop(); took > 30*time.Second {
			t.Errorf("the service ended after %v", took)
		}
	})
}

// TestErrorsOfMachines: those that a client should try again are 503 with Retry-After, others 409. A panic is 500.
func TestErrorsOfMachines(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for err, status := range map[error]int{fmt.Errorf("create: %w", redfish.ErrBusy): 503, fmt.Errorf("kvm1: %w", redfish.ErrDown): 503, errors.New("no such VM: create it first"): 409} {
		s.machines.fail = err
		a := s.ask("operator", "POST", system+"/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`)
		if a.status != status || (a.header.Get("Retry-After") != "") != (status == 503) || !strings.Contains(a.body, err.Error()) {
			t.Errorf("%v: %d %s %v", err, a.status, a.body, a.header)
		}
	}
	s.machines.m.Power, s.machines.m.Err = redfish.PowerUnknown, "hypervisor kvm1 is down"
	if a := s.ask("readonly", "GET", system, ""); a.json["PowerState"] != nil || !strings.Contains(a.body, `"UnavailableOffline"`) {
		t.Errorf("of a hypervisor that is down: %s", a.body)
	}
}

// TestETag: a PATCH with the ETag of an older state is refused.
func TestETag(t *testing.T) {
	t.Parallel()
	s := newService(t)
	tag := s.ask("operator", "GET", system, "").header.Get("ETag")
	const boot = `{"Boot": {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Once"}}`
	if a := s.ask("operator", "PATCH", system, boot, "If-Match: "+tag); a.status != 200 || a.header.Get("ETag") == tag {
		t.Errorf("with the present ETag: %d %v", a.status, a.header)
	}
	if a := s.ask("operator", "PATCH", system, boot, "If-Match: "+tag); a.status != 412 || !strings.Contains(a.body, "PreconditionFailed") {
		t.Errorf("with an older ETag: %d %s", a.status, a.body)
	}
}

// TestSessions: a session works until it is ended or idle, not for others, and not for an account that is gone.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := newService(t)
	const sessions = "/redfish/v1/SessionService/Sessions"
	login := func(user string) (key, at string) {
		t.Helper()
		a := s.ask("", "POST", sessions, fmt.Sprintf(`{"UserName": %q, "Password": "password of %[1]s"}`, user))
		if a.status != 201 || a.header.Get("X-Auth-Token") == "" || a.json["@odata.id"] != a.header.Get("Location") || strings.Contains(a.body, "password of") {
			t.Fatalf("log in: %d %v %s", a.status, a.header, a.body)
		}
		return a.header.Get("X-Auth-Token"), a.header.Get("Location")
	}
	in := func(key string) bool { return s.ask("", "GET", system, "", "X-Auth-Token: "+key).status == 200 }
	mine, at := login("operator")
	other, otherAt := login("readonly")
	if !in(mine) || !in(other) || in("x") {
		t.Error("a session does not work, or none does")
	}
	if a := s.ask("", "DELETE", at, "", "X-Auth-Token: "+other); a.status != 403 {
		t.Errorf("another's session: %d", a.status)
	}
	if a := s.ask("", "DELETE", otherAt, "", "X-Auth-Token: "+other); a.status != 204 || in(other) {
		t.Errorf("log out: %d", a.status)
	}
	s.now = s.now.Add(29 * time.Minute)
	if !in(mine) {
		t.Error("a session in use ended")
	}
	for range 16 - 1 { // a client that ends none of its sessions
		login("operator")
	}
	if a := s.ask("", "POST", sessions, `{"UserName": "operator", "Password": "password of operator"}`); a.status != 503 {
		t.Errorf("too many sessions of an account: %d", a.status)
	}
	login("readonly")
	s.now = s.now.Add(31 * time.Minute)
	if in(mine) {
		t.Error("an idle session works")
	}
	mine, _ = login("operator")
	s.lab = &lab.Lab{Redfish: lab.Redfish{Accounts: s.lab.Redfish.Accounts[:1]}}
	if in(mine) {
		t.Error("a session of an account that is gone works")
	}
	full := 0
	for range 100 {
		if s.ask("", "POST", sessions, `{"UserName": "administrator", "Password": "password of administrator"}`).status == 503 {
			full++
		}
	}
	if full == 0 {
		t.Error("there may be any number of sessions")
	}
}

// TestPasswords: a source has some tries. Without a password in its file an account cannot log in.
func TestPasswords(t *testing.T) {
	t.Parallel()
	s := newService(t)
	if err := os.WriteFile(filepath.Join(s.dir, "readonly"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := func() int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", system, nil)
		r.SetBasicAuth("readonly", "")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 10 {
		if status := wrong(); status != 401 {
			t.Errorf("an empty password: %d", status)
		}
	}
	if status := wrong(); status != 503 {
		t.Errorf("after ten tries: %d", status)
	}
	if a := s.ask("operator", "GET", system, ""); a.status != 503 {
		t.Errorf("a right password after ten tries: %d", a.status)
	}
	s.now = s.now.Add(time.Minute)
	if a := s.ask("operator", "GET", system, ""); a.status != 200 {
		t.Errorf("a minute later: %d", a.status)
	}
}

// FuzzRequest: whatever a client sends gets an answer of the service, and an error has its message.
func FuzzRequest(f *testing.F) {
	f.Add("PATCH", system, `{"Boot": {"BootSourceOverrideTarget": "Cd"}}`)
	f.Add("POST", system+"/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`)
	f.Add("POST", "/redfish/v1/SessionService/Sessions", `{"UserName": 1}`)
	f.Add("POST", "/redfish/v1/Managers/m1/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia", `{"Image": "http://x/\u0000"}`)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(path, "/") || strings.Contains(path, "..") || strings.Contains(path, "//") || r.URL.Host != "x" {
			return
		}
		s := newService(t)
		r.SetBasicAuth("administrator", "password of administrator")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code >= 400 && method != http.MethodHead && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q %q: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}

// TestHostHeader: a page whose name was made to resolve to our address reads nothing, and tries no password, not even a right one.
func TestHostHeader(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for host, want := range map[string]int{
		"example.com": 200, "EXAMPLE.com.:8443": 200, "localhost:9443": 200, "127.0.0.1:8443": 200, "[::1]:8443": 200,
		"example.com:80": 421, "evil.example": 421, "evil.example:8443": 421, "192.0.2.9:8443": 421,
	} {
		for _, path := range []string{"/redfish/v1", "/redfish/v1/Systems"} {
			if got := s.ask("readonly", "GET", path, "", "Host: "+host); got.status != want {
				t.Errorf("GET %s, Host: %s: %d, want %d: %s", path, host, got.status, want, got.body)
			}
		}
	}
	login := func(host string) int {
		return s.ask("", "POST", "/redfish/v1/SessionService/Sessions", `{"UserName": "operator", "Password": "password of operator"}`, "Host: "+host).status
	}
	if got := login("evil.example"); got != 421 {
		t.Errorf("login by another name: %d", got)
	}
	if got := login("example.com"); got != 201 {
		t.Errorf("login by our name: %d", got)
	}
}

// TestSessionsEndWithTheirPassword: who changes a password ends the sessions that were opened with the old one, and no other.
func TestSessionsEndWithTheirPassword(t *testing.T) {
	t.Parallel()
	s := newService(t)
	session := func(user string) (token string) {
		t.Helper()
		a := s.ask("", "POST", "/redfish/v1/SessionService/Sessions", fmt.Sprintf(`{"UserName": %q, "Password": "password of %[1]s"}`, user))
		return "X-Auth-Token: " + a.header.Get("X-Auth-Token")
	}
	operator, reader := session("operator"), session("readonly")
	if a := s.ask("", "GET", "/redfish/v1/Systems", "", operator); a.status != 200 {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.dir, "operator"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("another password\n")
	if a := s.ask("", "GET", "/redfish/v1/Systems", "", operator); a.status != 401 {
		t.Errorf("the session of the old password: %d %s", a.status, a.body)
	}
	write("password of operator\n")
	if a := s.ask("", "GET", "/redfish/v1/Systems", "", operator); a.status != 401 {
		t.Errorf("a session that was ended: %d %s", a.status, a.body)
	}
	if a := s.ask("", "GET", "/redfish/v1/Systems", "", reader); a.status != 200 {
		t.Errorf("the session of another account: %d %s", a.status, a.body)
	}
}
