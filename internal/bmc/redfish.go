package bmc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	serviceRoot = "/redfish/v1/" // DSP0266 section 6.4
	maxAnswer   = 1 << 20        // bytes of one answer that are read
)

// errCredentials is wrapped by the error of a controller that does not let us in.
var errCredentials = errors.New("it refuses the user or the password")

// A redfish is one Redfish service.
type redfish struct {
	http           *http.Client
	base           *url.URL // without a path
	path           string   // of the computer system; empty: the only one
	user, password string
}

func newRedfish(b *lab.BMC, password string) (*redfish, error) {
	u, err := url.Parse(b.Redfish)
	if err != nil {
		return nil, fmt.Errorf("bmc.redfish: %w", err)
	}
	trust := &tls.Config{InsecureSkipVerify: b.Insecure, MinVersion: tls.VersionTLS12, CipherSuites: suites()} //nolint:gosec // the lab file says so
	if b.CAFile != "" {
		if trust.RootCAs, err = authorities(b.CAFile); err != nil {
			return nil, err
		}
	}
	r := &redfish{user: b.Username, password: password, base: &url.URL{Scheme: u.Scheme, Host: u.Host}}
	if strings.Contains(u.Path, "/Systems/") {
		r.path = u.Path
	}
	r.http = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true},
		CheckRedirect: r.onSameController,
	}
	return r, nil
}

// suites are Go's, and behind them those of controllers of ten years ago, which know no elliptic curves.
func suites() (ids []uint16) {
	for _, s := range tls.CipherSuites() {
		ids = append(ids, s.ID)
	}
	return append(ids, tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_CBC_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA)
}

// onSameController keeps the password from other machines.
func (r *redfish) onSameController(req *http.Request, via []*http.Request) error {
	if req.URL.Host != r.base.Host || req.URL.Scheme != r.base.Scheme || len(via) > 5 {
		return fmt.Errorf("it sends us to %s, which is not followed", printable(req.URL.Redacted()))
	}
	return nil
}

func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("bmc.ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("bmc.ca_file: %s holds no certificate: want PEM", file)
	}
	return pool, nil
}

func untrusted(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// A link is a reference to another resource of the service.
type link struct {
	ID string `json:"@odata.id"`
}

// A system is what we need of a ComputerSystem (DSP0268).
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

// cycle boots the system from the network, once and now.
func (r *redfish) cycle(ctx context.Context) error {
	path, err := r.find(ctx)
	if err != nil {
		return err
	}
	var s system
	if err := r.get(ctx, path, &s); err != nil {
		return err
	}
	target, err := s.bootTarget()
	if err != nil {
		return err
	}
	// Once is what keeps a machine from installing for ever if its controller outranks the boot order.
	boot := map[string]any{"Boot": map[string]string{"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target}}
	if err := r.send(ctx, http.MethodPatch, path, boot, s.ETag); err != nil {
		return fmt.Errorf("set the next boot to %s: %w", target, err)
	}
	resets, err := s.resets()
	if err != nil {
		return err
	}
	action := s.Actions.Reset.Target
	if action == "" {
		action = strings.TrimSuffix(path, "/") + "/Actions/ComputerSystem.Reset"
	}
	for _, how := range resets {
		if err := r.send(ctx, http.MethodPost, action, map[string]string{"ResetType": how}, ""); err != nil {
			return fmt.Errorf("restart it (%s): %w", how, err)
		}
	}
	return nil
}

// bootTarget is the network, as this controller calls it. One that does not say what it can do is asked for PXE.
func (s *system) bootTarget() (string, error) {
	can := s.Boot.Targets
	for _, target := range []string{"Pxe", "UefiHttp"} {
		if len(can) == 0 || slices.Contains(can, target) {
			return target, nil
		}
	}
	return "", fmt.Errorf("it cannot boot from the network, but from %s", printable(strings.Join(can, ", ")))
}

// resets is what it takes to restart the machine, in order.
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
	return nil, fmt.Errorf("it cannot restart the machine, but %s", printable(strings.Join(can, ", ")))
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
		return "", fmt.Errorf("it names no computer systems: want the URL of one, such as %s%sSystems/1", r.base, serviceRoot)
	}
	var systems struct{ Members []link }
	if err := r.get(ctx, root.Systems.ID, &systems); err != nil {
		return "", err
	}
	if len(systems.Members) != 1 {
		return "", fmt.Errorf("it has %d computer systems: want bmc.redfish to name one%s", len(systems.Members), some(r.base, systems.Members))
	}
	return systems.Members[0].ID, nil
}

func some(base *url.URL, members []link) string {
	text := ""
	for _, m := range members[:min(len(members), 4)] {
		text += ", " + base.String() + printable(m.ID)
	}
	return text
}

func (r *redfish) get(ctx context.Context, path string, into any) error {
	b, err := r.do(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return fmt.Errorf("get %s: %w", printable(path), err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("get %s: its answer is no JSON of Redfish: %w", printable(path), err)
	}
	return nil
}

// send changes something. Where the controller insists on it, the change is bound to what was read before.
func (r *redfish) send(ctx context.Context, method, path string, body any, etag string) error {
	_, err := r.do(ctx, method, path, body, "")
	var refused *statusError
	if etag != "" && errors.As(err, &refused) && (refused.code == http.StatusPreconditionFailed || refused.code == http.StatusPreconditionRequired) {
		_, err = r.do(ctx, method, path, body, etag)
	}
	return err
}

// A statusError is an answer that is none of success.
type statusError struct {
	code    int
	message string
}

// Error tells the status, and what the controller said about it.
func (e *statusError) Error() string {
	text := fmt.Sprintf("%d %s", e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// Unwrap tells the refusals apart that people can do something about.
func (e *statusError) Unwrap() error {
	if e.code == http.StatusUnauthorized || e.code == http.StatusForbidden {
		return errCredentials
	}
	return nil
}

// do asks the controller. A path that is a whole URL would lead elsewhere, password and all, and is refused.
func (r *redfish) do(ctx context.Context, method, path string, body any, etag string) ([]byte, error) {
	u, err := url.Parse(path)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("%q is no path of this controller", printable(path))
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
			err = ue.Err // without the URL, which stands in front already
		}
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{resp.StatusCode, complaint(b)}
	}
	return b, err
}

// complaint is what the controller says is wrong (DSP0266 section 8.6).
func complaint(b []byte) string {
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
		return printable(e.Error.Extended[0].Message)
	}
	return printable(e.Error.Message)
}
