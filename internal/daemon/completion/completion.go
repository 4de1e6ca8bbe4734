package completion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/daemon/cluster"
	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

const (
	configMap   = "/api/v1/namespaces/kube-system/configmaps/bootstrap" // openshift-install waits for the same one
	askEvery    = 5 * time.Second
	answerAge   = 4 * askEvery     // an answer counts: what was said before a reinstallation says nothing about it
	answerLimit = 10 * time.Second // for one answer
	dialLimit   = 2 * time.Second  // for one machine
	answerSize  = 1 << 20          // bytes of an answer
)

// An Asker has what the API servers of clusters with a kubeconfig say of their bootstrap. They are asked while the bootstrap machine is
// needed and a machine of the cluster serves its API.
type Asker struct {
	log   *slog.Logger
	files *freshfile.Cache[string, *load.Kubeconfig] // by path

	mu      sync.Mutex
	answers map[string]*answer // by cluster
}

// An answer is the last one of a cluster.
type answer struct {
	busy  bool
	asked time.Time
	value cluster.Completion
	err   string
}

// New returns an asker that has asked nobody yet.
func New(log *slog.Logger) *Asker {
	return &Asker{log: log, files: freshfile.New(log, load.KubeconfigFiles, load.ReadKubeconfig), answers: map[string]*answer{}}
}

// Of returns what a cluster says of its bootstrap, and why it says nothing.
func (a *Asker) Of(cl *lab.Cluster, now time.Time) (cluster.Completion, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.answers[cl.Name]
	if cl.Kubeconfig == "" || last == nil || now.Sub(last.asked) > answerAge {
		return cluster.NotReported, ""
	}
	return last.value, last.err
}

// Ask asks a cluster through the first of its machines that accepts a connection, if the last answer is old. It returns at once; asking
// waits for the answer.
func (a *Asker) Ask(ctx context.Context, asking *sync.WaitGroup, cl *lab.Cluster, machines []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.answers[cl.Name]
	if last == nil {
		last = &answer{}
		a.answers[cl.Name] = last
	}
	if last.busy || time.Since(last.asked) < askEvery {
		return
	}
	last.busy = true
	asking.Go(func() {
		value, err := a.askNow(ctx, cl, machines)
		a.mu.Lock()
		defer a.mu.Unlock()
		text := errorText(err)
		if text != "" && text != last.err {
			a.log.Warn("bootstrap ConfigMap cannot be read: the bootstrap machine is removed from the balancers once its own check fails", "cluster", cl.Name, "err", err)
		}
		last.busy, last.asked, last.value, last.err = false, time.Now(), value, text
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (a *Asker) askNow(ctx context.Context, cl *lab.Cluster, machines []netip.Addr) (cluster.Completion, error) {
	k, err := a.files.Get(cl.Kubeconfig)
	if err != nil {
		return cluster.NotReported, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return askAPIServer(ctx, k, cl, machines)
}

// askAPIServer reads the ConfigMap kube-system/bootstrap. That there is none is an answer: the bootstrap writes it last.
func askAPIServer(ctx context.Context, k *load.Kubeconfig, cl *lab.Cluster, machines []netip.Addr) (cluster.Completion, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.Server.JoinPath(configMap).String(), nil)
	if err != nil {
		return cluster.NotReported, err
	}
	request.Header.Set("Accept", "application/json")
	token, err := tokenOf(k)
	if err != nil {
		return cluster.NotReported, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: k.TLS, DisableKeepAlives: true, DialContext: dialMachines(cl, machines)}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(request)
	if err != nil {
		return cluster.NotReported, err
	}
	defer resp.Body.Close()
	return readCompletion(resp)
}

// tokenOf returns what authenticates a request; empty: a certificate does.
func tokenOf(k *load.Kubeconfig) (string, error) {
	if k.TokenFile == "" {
		return k.Token, nil
	}
	b, err := regular.Read(k.TokenFile, regular.Small)
	return strings.TrimSpace(string(b)), err
}

// readCompletion returns what a ConfigMap, or the Status in its place, means (Kubernetes API conventions, "Response Status Kind").
func readCompletion(resp *http.Response) (cluster.Completion, error) {
	var object struct {
		Kind, Reason, Message string
		Data                  map[string]string
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, answerSize)).Decode(&object)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil && object.Kind == "ConfigMap":
		if object.Data["status"] == "complete" {
			return cluster.Complete, nil
		}
		return cluster.Incomplete, nil
	case resp.StatusCode == http.StatusNotFound && object.Kind == "Status" && object.Reason == "NotFound":
		return cluster.Incomplete, nil
	case resp.StatusCode == http.StatusOK:
		return cluster.NotReported, errors.New("the answer is no ConfigMap")
	}
	if object.Message == "" {
		return cluster.NotReported, fmt.Errorf("the answer is %s, and not from an API server of Kubernetes", resp.Status)
	}
	return cluster.NotReported, fmt.Errorf("the API server answers %s: %.200s", resp.Status, object.Message)
}

// dialMachines connects to the first of the machines that accepts where the name is one of the cluster's own, which this machine need not
// be able to look up.
func dialMachines(cl *lab.Cluster, machines []netip.Addr) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialLimit}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		own := strings.EqualFold(name, "api."+cl.Domain) || strings.EqualFold(name, "api-int."+cl.Domain)
		if err != nil || !own || len(machines) == 0 {
			return d.DialContext(ctx, network, address)
		}
		var errs []error
		for _, m := range machines {
			conn, err := d.DialContext(ctx, network, net.JoinHostPort(m.String(), port))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}
