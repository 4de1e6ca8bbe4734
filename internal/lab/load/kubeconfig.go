package load

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
)

// A Kubeconfig is the current context of a kubeconfig file: an API server, and who one is there.
type Kubeconfig struct {
	Server    *url.URL
	TLS       *tls.Config // with the client certificate, if there is one
	Token     string      // empty: none, or one in TokenFile
	TokenFile string      // read for each request: tokens in files expire
	Files     []string    // that the kubeconfig is made from, itself first
}

// rawKubeconfig is what is read of a kubeconfig (k8s.io/client-go/tools/clientcmd/api/v1).
type rawKubeconfig struct {
	Kind     string           `json:"kind"`
	Current  string           `json:"current-context"`
	Contexts []rawKubeContext `json:"contexts"`
	Clusters []rawKubeCluster `json:"clusters"`
	Users    []rawKubeUser    `json:"users"`
}

type rawKubeContext struct {
	Name    string
	Context struct{ Cluster, User string }
}

type rawKubeCluster struct {
	Name    string
	Cluster struct {
		Server     string
		ServerName string `json:"tls-server-name"`
		Insecure   bool   `json:"insecure-skip-tls-verify"`
		CA         string `json:"certificate-authority"`
		CAData     string `json:"certificate-authority-data"`
		Proxy      string `json:"proxy-url"`
	}
}

type rawKubeUser struct {
	Name string
	User struct {
		Certificate     string `json:"client-certificate"`
		CertificateData string `json:"client-certificate-data"`
		Key             string `json:"client-key"`
		KeyData         string `json:"client-key-data"`
		Token           string
		TokenFile       string
		Exec            any
		Provider        any `json:"auth-provider"`
		As              string
	}
}

// ReadKubeconfig reads a kubeconfig with a client certificate or a token. The error names the file, the key and what would be right.
func ReadKubeconfig(path string) (*Kubeconfig, error) {
	text, err := regular.Read(path, regular.Small)
	if err != nil {
		return nil, err
	}
	k, err := parseKubeconfig(path, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func parseKubeconfig(path string, text []byte) (*Kubeconfig, error) {
	tree, err := YAMLValue(text)
	if err != nil {
		return nil, err
	}
	again, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	var raw rawKubeconfig
	if err := json.Unmarshal(again, &raw); err != nil || raw.Kind != "" && raw.Kind != "Config" {
		return nil, errors.New("is no kubeconfig: want a file with kind: Config, as openshift-install writes into auth/kubeconfig")
	}
	context := named(raw.Contexts, raw.Current, func(c *rawKubeContext) string { return c.Name })
	if context == nil {
		return nil, fmt.Errorf("current-context: %q is not in contexts: want one of them", raw.Current)
	}
	cluster := named(raw.Clusters, context.Context.Cluster, func(c *rawKubeCluster) string { return c.Name })
	if cluster == nil {
		return nil, fmt.Errorf("the cluster %q of context %s is not in clusters: want one of them", context.Context.Cluster, context.Name)
	}
	user := named(raw.Users, context.Context.User, func(u *rawKubeUser) string { return u.Name })
	if user == nil {
		return nil, fmt.Errorf("the user %q of context %s is not in users: want one of them", context.Context.User, context.Name)
	}
	k := &Kubeconfig{TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Files: []string{path}}
	return k, errors.Join(k.server(cluster), k.user(user))
}

// named returns the item of that name; nil: there is none.
func named[T any](all []T, name string, nameOf func(*T) string) *T {
	for i := range all {
		if nameOf(&all[i]) == name {
			return &all[i]
		}
	}
	return nil
}

// server takes over where the API server is and how it is verified.
func (k *Kubeconfig) server(raw *rawKubeCluster) error {
	c, key := &raw.Cluster, "clusters."+raw.Name+"."
	var err error
	if k.Server, err = url.Parse(c.Server); err != nil || k.Server.Scheme != "https" || k.Server.Host == "" {
		return fmt.Errorf("%sserver: %q is no address of an API server: want one such as https://api.prod.example.com:6443", key, c.Server)
	}
	if c.Proxy != "" {
		return fmt.Errorf("%sproxy-url is not supported: want a server that is reached without a proxy", key)
	}
	k.TLS.ServerName, k.TLS.InsecureSkipVerify = c.ServerName, c.Insecure //nolint:gosec // the kubeconfig says so
	ca, err := k.data(key+"certificate-authority", c.CA, c.CAData)
	if err != nil || ca == nil {
		return err
	}
	k.TLS.RootCAs = x509.NewCertPool()
	if !k.TLS.RootCAs.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%scertificate-authority has no certificate: want PEM", key)
	}
	return nil
}

// user takes over the client certificate or the token.
func (k *Kubeconfig) user(raw *rawKubeUser) error {
	u, key := &raw.User, "users."+raw.Name+"."
	if u.TokenFile != "" {
		k.TokenFile = k.beside(u.TokenFile)
		k.Files = append(k.Files, k.TokenFile)
	}
	k.Token = u.Token
	certificate, err := k.data(key+"client-certificate", u.Certificate, u.CertificateData)
	if err != nil {
		return err
	}
	private, err := k.data(key+"client-key", u.Key, u.KeyData)
	switch {
	case err != nil:
		return err
	case u.As != "":
		return fmt.Errorf("%sas is not supported: want a user who may read the ConfigMap himself", key)
	case certificate != nil || private != nil:
		pair, err := tls.X509KeyPair(certificate, private)
		if err != nil {
			return fmt.Errorf("%sclient-certificate and client-key: %w", key, err)
		}
		k.TLS.Certificates = []tls.Certificate{pair}
	case cmp.Or(u.Token, u.TokenFile) == "" && (u.Exec != nil || u.Provider != nil):
		return fmt.Errorf("%sexec and auth-provider start programs, which is not supported: want a client certificate or a token", key)
	case cmp.Or(u.Token, u.TokenFile) == "":
		return fmt.Errorf("%s has neither a client certificate nor a token: want one", strings.TrimSuffix(key, "."))
	}
	return nil
}

// data returns what a key holds in base64, or in a file.
func (k *Kubeconfig) data(key, file, inline string) ([]byte, error) {
	if inline != "" {
		b, err := base64.StdEncoding.DecodeString(inline)
		if err != nil {
			return nil, fmt.Errorf("%s-data: %w", key, err)
		}
		return b, nil
	}
	if file == "" {
		return nil, nil
	}
	path := k.beside(file)
	k.Files = append(k.Files, path)
	b, err := regular.Read(path, regular.Small)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return b, nil
}

// beside returns a path as the kubeconfig means it: relative to its own folder.
func (k *Kubeconfig) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(k.Files[0]), path)
}

// checkKubeconfigs warns of kubeconfigs that do not exist yet, and reports those that cannot be used.
func (r *resolver) checkKubeconfigs() {
	for i, e := range r.raw.Clusters.Entries {
		path, key := r.lab.Clusters[i].Kubeconfig, "clusters."+e.Name+".kubeconfig"
		if path == "" {
			continue
		}
		if _, err := regular.Stat(path); errors.Is(err, fs.ErrNotExist) {
			r.checkFile(&e.V.Kubeconfig, key, path)
			continue
		}
		if _, err := ReadKubeconfig(path); err != nil {
			r.fail(e.V.Kubeconfig.spot, key, "%s", err)
		}
	}
}

// KubeconfigFiles returns the files that a kubeconfig is made from, itself first: it alone if it cannot be read.
func KubeconfigFiles(path string) []string {
	k, err := ReadKubeconfig(path)
	if err != nil {
		return []string{path}
	}
	return k.Files
}
