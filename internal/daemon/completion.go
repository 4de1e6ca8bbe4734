package daemon

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
	"github.com/bootlab/bootlab/internal/host/freshfile"
	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

const (
	completionPath  = "/api/v1/namespaces/kube-system/configmaps/bootstrap" // openshift-install waits for the same one
	completionEvery = 5 * time.Second
	completionFor   = 4 * completionEvery // an answer counts: what was said before a reinstallation says nothing about it
	completionLimit = 10 * time.Second    // for one answer
	completionDial  = 2 * time.Second     // for one machine
	completionSize  = 1 << 20             // bytes of an answer
)

// completions are what the API servers of clusters with a kubeconfig say of their bootstrap. They are asked while the bootstrap machine is
// needed and a machine of the cluster serves its API.
type completions struct {
	log   *slog.Logger
	files *freshfile.Cache[string, *load.Kubeconfig] // by path

	mu      sync.Mutex
	answers map[string]*completion // by cluster
}

// A completion is the last answer of one cluster.
type completion struct {
	busy  bool
	asked time.Time
	value cluster.Completion
	err   string
}

func newCompletions(log *slog.Logger) *completions {
	return &completions{log: log, files: freshfile.New(log, kubeconfigFiles, load.ReadKubeconfig), answers: map[string]*completion{}}
}

// kubeconfigFiles returns the files that a kubeconfig is made from, itself first.
func kubeconfigFiles(path string) []string {
	k, err := load.ReadKubeconfig(path)
	if err != nil {
		return []string{path}
	}
	return k.Files
}

// of returns what a cluster says of its bootstrap, and why it says nothing.
func (c *completions) of(cl *lab.Cluster, now time.Time) (cluster.Completion, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.answers[cl.Name]
	if cl.Kubeconfig == "" || last == nil || now.Sub(last.asked) > completionFor {
		return cluster.NotReported, ""
	}
	return last.value, last.err
}

// ask asks a cluster through the first of its machines that accepts a connection, if the last answer is old.
func (c *completions) ask(ctx context.Context, asking *sync.WaitGroup, cl *lab.Cluster, machines []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.answers[cl.Name]
	if last == nil {
		last = &completion{}
		c.answers[cl.Name] = last
	}
	if last.busy || time.Since(last.asked) < completionEvery {
		return
	}
	last.busy = true
	asking.Go(func() {
		value, err := c.askNow(ctx, cl, machines)
		c.mu.Lock()
		defer c.mu.Unlock()
		text := errorText(err)
		if text != "" && text != last.err {
			c.log.Warn("bootstrap ConfigMap cannot be read: the bootstrap machine leaves once its own check fails", "cluster", cl.Name, "err", err)
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

func (c *completions) askNow(ctx context.Context, cl *lab.Cluster, machines []netip.Addr) (cluster.Completion, error) {
	k, err := c.files.Get(cl.Kubeconfig)
	if err != nil {
		return cluster.NotReported, err
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	return askAPIServer(ctx, k, cl, machines)
}

// askAPIServer reads the ConfigMap kube-system/bootstrap. That there is none is an answer: the bootstrap writes it last.
func askAPIServer(ctx context.Context, k *load.Kubeconfig, cl *lab.Cluster, machines []netip.Addr) (cluster.Completion, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.Server.JoinPath(completionPath).String(), nil)
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
	err := json.NewDecoder(io.LimitReader(resp.Body, completionSize)).Decode(&object)
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
	d := net.Dialer{Timeout: completionDial}
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
