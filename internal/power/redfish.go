package power

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

const (
	dialTimeout = 10 * time.Second // of a controller that is dead, or hangs: also of what is only read
	serviceRoot = "/redfish/v1/"   // DSP0266 section 6.4
	maxAnswer   = 1 << 20          // bytes of one answer that are read
)

// errCredentials is wrapped by the error of a controller that refuses the user or the password.
var errCredentials = errors.New("user or password refused")

// A redfish is one Redfish service.
type redfish struct {
	http           *http.Client
	base           *url.URL // without a path
	path           string   // of the computer system; empty: the only one
	user, password string
	firmware       lab.Firmware // of a boot that is set
}

func newRedfish(b *lab.BMC, password string) (*redfish, error) {
	u, err := url.Parse(b.Redfish)
	if err != nil {
		return nil, fmt.Errorf("bmc.redfish: %w", err)
	}
	trust := &tls.Config{InsecureSkipVerify: b.Insecure, MinVersion: tls.VersionTLS12, CipherSuites: suites()} //nolint:gosec // the lab file says so
	if b.CAFile != "" {
		if trust.RootCAs, err = regular.Authorities(b.CAFile); err != nil {
			return nil, fmt.Errorf("bmc.ca_file: %w", err)
		}
	}
	r := &redfish{firmware: b.Firmware, user: b.Username, password: password, base: &url.URL{Scheme: u.Scheme, Host: u.Host}}
	if strings.Contains(u.Path, "/Systems/") {
		r.path = u.Path
	}
	r.http = &http.Client{
		Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout},
		CheckRedirect: r.onSameController,
	}
	return r, nil
}

// suites returns Go's cipher suites, then those of controllers without elliptic curves, of about 2015.
func suites() (ids []uint16) {
	for _, s := range tls.CipherSuites() {
		ids = append(ids, s.ID)
	}
	return append(ids, tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_CBC_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA)
}

// onSameController refuses redirects to other machines, which would get the password.
func (r *redfish) onSameController(req *http.Request, via []*http.Request) error {
	if req.URL.Host != r.base.Host || req.URL.Scheme != r.base.Scheme || len(via) > 5 {
		return fmt.Errorf("redirect to %s refused: it is another machine", lab.Tidy(req.URL.Redacted(), maxMessage))
	}
	return nil
}

func untrusted(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// A link references another resource of the service.
type link struct {
	ID string `json:"@odata.id"`
}

// A system is the part of a ComputerSystem (DSP0268) that is used here.
type system struct {
	ETag       string `json:"@odata.etag"`
	PowerState string
	Boot       struct {
		Targets []string `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	}
	Actions struct {
		Reset struct {
			Target string   `json:"target"`
			Types  []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}
}

// bootFromNetwork makes the next boot of the system one from the network, once.
func (r *redfish) bootFromNetwork(ctx context.Context, path string, s *system) error {
	// Not Continuous: the override outranks the boot order, and the machine would install again at every boot.
	return r.setBoot(ctx, path, s, DeviceNetwork, Once)
}

// boot sets what the system boots from.
func (r *redfish) boot(ctx context.Context, d Device, how How) error {
	path, err := r.find(ctx)
	if err != nil {
		return err
	}
	var s system
	if err := r.get(ctx, path, &s); err != nil {
		return err
	}
	return r.setBoot(ctx, path, &s, d, how)
}

// setBoot sets the boot source override (DSP0268, ComputerSystem).
func (r *redfish) setBoot(ctx context.Context, path string, s *system, d Device, how How) error {
	boot := map[string]string{"BootSourceOverrideEnabled": "Once"}
	switch {
	case d == DeviceDefault:
		boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"] = "Disabled", "None"
	case how == Always:
		boot["BootSourceOverrideEnabled"] = "Continuous"
	}
	if d != DeviceDefault {
		target, err := s.bootTarget(d)
		if err != nil {
			return err
		}
		boot["BootSourceOverrideTarget"] = target
		if mode := map[lab.Firmware]string{lab.FirmwareBIOS: "Legacy", lab.FirmwareUEFI: "UEFI"}[r.firmware]; mode != "" {
			boot["BootSourceOverrideMode"] = mode
		}
	}
	if err := r.send(ctx, http.MethodPatch, path, map[string]any{"Boot": boot}, s.ETag); err != nil {
		return fmt.Errorf("set the next boot to %s: %w", boot["BootSourceOverrideTarget"], err)
	}
	return nil
}

// reset makes resets, in order.
func (r *redfish) reset(ctx context.Context, path string, s *system, resets []string) error {
	action := s.Actions.Reset.Target
	if action == "" {
		action = strings.TrimSuffix(path, "/") + "/Actions/ComputerSystem.Reset"
	}
	for _, how := range resets {
		if err := r.send(ctx, http.MethodPost, action, map[string]string{"ResetType": how}, ""); err != nil {
			return fmt.Errorf("reset (%s): %w", how, err)
		}
	}
	return nil
}

// power switches the power of the system, or asks for it.
func (r *redfish) power(ctx context.Context, a Action) (State, error) {
	path, err := r.find(ctx)
	if err != nil {
		return "", err
	}
	var s system
	if err := r.get(ctx, path, &s); err != nil {
		return "", err
	}
	is := State(strings.ToLower(lab.Tidy(s.PowerState, maxMessage)))
	if a == Status && is == "" {
		return "", errors.New("it does not say whether the machine is on")
	}
	if a == Status || string(is) == string(a) {
		return is, nil
	}
	if a == NetBoot {
		if err := r.bootFromNetwork(ctx, path, &s); err != nil {
			return "", err
		}
	}
	want := StateOn
	var resets []string
	switch a {
	case On:
		resets, err = s.first("power the machine on", "On", "ForceOn")
	case Off:
		want = StateOff
		resets, err = s.first("power the machine off", "ForceOff", "GracefulShutdown")
	default:
		resets, err = s.resets()
	}
	if err != nil {
		return "", err
	}
	return want, r.reset(ctx, path, &s, resets)
}

// first returns the first reset type that this controller has; the first of all if it does not say.
func (s *system) first(what string, types ...string) ([]string, error) {
	can := s.Actions.Reset.Types
	for _, t := range types {
		if len(can) == 0 || slices.Contains(can, t) {
			return []string{t}, nil
		}
	}
	return nil, fmt.Errorf("it cannot %s; reset types: %s", what, lab.Tidy(strings.Join(can, ", "), maxMessage))
}

// targets are the boot targets for a device, the best first.
var targets = map[Device][]string{DeviceNetwork: {"Pxe", "UefiHttp"}, DeviceDisk: {"Hdd"}, DeviceCD: {"Cd", "UsbCd"}}

// bootTarget returns the target for a device that this controller supports; the best if it does not say.
func (s *system) bootTarget(d Device) (string, error) {
	can := s.Boot.Targets
	for _, target := range targets[d] {
		if len(can) == 0 || slices.Contains(can, target) {
			return target, nil
		}
	}
	return "", fmt.Errorf("it cannot boot from the %s; boot targets: %s", d, lab.Tidy(strings.Join(can, ", "), maxMessage))
}

// resets returns the reset types that restart the machine, in order.
func (s *system) resets() ([]string, error) {
	can := s.Actions.Reset.Types
	if strings.EqualFold(s.PowerState, "Off") {
		return []string{"On"}, nil
	}
	for _, how := range []string{"ForceRestart", "PowerCycle", "ForceOff", "GracefulRestart"} {
		switch {
		case len(can) > 0 && !slices.Contains(can, how):
		case how == "ForceOff" && slices.Contains(can, "On"):
			return []string{"ForceOff", "On"}, nil
		case how != "ForceOff":
			return []string{how}, nil
		}
	}
	return nil, fmt.Errorf("it cannot restart the machine; reset types: %s", lab.Tidy(strings.Join(can, ", "), maxMessage))
}

// find returns the path of the computer system.
func (r *redfish) find(ctx context.Context) (string, error) {
	if r.path != "" {
		return r.path, nil
	}
	var root struct{ Systems link }
	if err := r.get(ctx, serviceRoot, &root); err != nil {
		return "", err
	}
	if root.Systems.ID == "" {
		return "", fmt.Errorf("it lists no computer systems: set bmc.redfish to the URL of one, such as %s%sSystems/1", r.base, serviceRoot)
	}
	var systems struct{ Members []link }
	if err := r.get(ctx, root.Systems.ID, &systems); err != nil {
		return "", err
	}
	if len(systems.Members) != 1 {
		return "", fmt.Errorf("it has %d computer systems: set bmc.redfish to the URL of one%s", len(systems.Members), some(r.base, systems.Members))
	}
	return systems.Members[0].ID, nil
}

func some(base *url.URL, members []link) string {
	text := ""
	for _, m := range members[:min(len(members), 4)] {
		text += ", " + base.String() + lab.Tidy(m.ID, maxMessage)
	}
	return text
}

func (r *redfish) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	b, err := r.do(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return fmt.Errorf("get %s: %w", lab.Tidy(path, maxMessage), err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("get %s: the answer is no Redfish JSON: %w", lab.Tidy(path, maxMessage), err)
	}
	return nil
}

// send sends a change, and again with If-Match if the controller requires it.
func (r *redfish) send(ctx context.Context, method, path string, body any, etag string) error {
	_, err := r.do(ctx, method, path, body, "")
	var refused *statusError
	if etag != "" && errors.As(err, &refused) && (refused.code == http.StatusPreconditionFailed || refused.code == http.StatusPreconditionRequired) {
		_, err = r.do(ctx, method, path, body, etag)
	}
	return err
}

// A statusError is an HTTP status other than 2xx.
type statusError struct {
	code    int
	message string
}

// Error returns the status and the message of the controller.
func (e *statusError) Error() string {
	text := fmt.Sprintf("%d %s", e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// Unwrap returns errCredentials for 401 and 403.
func (e *statusError) Unwrap() error {
	if e.code == http.StatusUnauthorized || e.code == http.StatusForbidden {
		return errCredentials
	}
	return nil
}

// do sends a request. A path that is a whole URL is refused: another machine would get the password.
func (r *redfish) do(ctx context.Context, method, path string, body any, etag string) ([]byte, error) {
	u, err := url.Parse(path)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("%q is no path on this controller", lab.Tidy(path, maxMessage))
	}
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base.ResolveReference(u).String(), &payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("OData-Version", "4.0")
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if etag != "" {
		req.Header.Set("If-Match", etag)
	}
	if r.user != "" || r.password != "" {
		req.SetBasicAuth(r.user, r.password)
	}
	return r.answer(req)
}

func (r *redfish) answer(req *http.Request) ([]byte, error) {
	resp, err := r.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL, which the caller adds
		}
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{resp.StatusCode, errorMessage(b)}
	}
	return b, err
}

// errorMessage returns the message of an error response (DSP0266 section 8.6).
func errorMessage(b []byte) string {
	var e struct {
		Error struct {
			Message  string
			Extended []struct{ Message string } `json:"@Message.ExtendedInfo"`
		}
	}
	if json.Unmarshal(b, &e) != nil {
		return ""
	}
	if len(e.Error.Extended) > 0 && e.Error.Extended[0].Message != "" {
		return lab.Tidy(e.Error.Extended[0].Message, maxMessage)
	}
	return lab.Tidy(e.Error.Message, maxMessage)
}
