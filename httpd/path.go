package httpd

import (
	"cmp"
	"io/fs"
	"strings"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
)

// A route is what a machine's path asks for.
type route int

const (
	routeNone route = iota
	routeScript
	routeFirmware
	routeFile
	routeConfig
	routeDone
	routeReport
	routeAnswer
	routeMirror
)

// routeNames are the routes in metrics.
func routeNames() []string {
	return []string{"none", "script", "firmware", "file", "config", "done", "report", "answer", "mirror"}
}

// SelfTestPath is what the daemon's own checks ask both servers for: health of Admin; Boot answers 404, and records no event for it.
const SelfTestPath = "/healthz"

// A target is a parsed path.
type target struct {
	route  route
	mac    lab.MAC // zero for a file
	token  string  // of config and done
	mirror string  // name of the mirror
	name   string  // the rest: of a file, a script or a document; valid by fs.ValidPath. Of routeNone the path, without a token
}

// parsePath reads the path of a URL, percent-encoding undone. A path that leads nowhere has routeNone. MACs may be
// written with hyphens or colons in either case; repeated slashes count as one, because GRUB and old firmware join paths
// so; "." and ".." are refused, not resolved.
func parsePath(p string) target {
	p = strings.TrimLeft(p, "/")
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	t := parseRoute(p)
	if t.route == routeNone {
		t.name = withoutToken(p)
	}
	return t
}

// withoutToken returns a path that leads nowhere as logs and events may hold it.
func withoutToken(p string) string {
	for _, prefix := range []string{lab.PathConfig, lab.PathDone} {
		rest, ok := strings.CutPrefix(p, prefix)
		if mac, token, _ := strings.Cut(rest, "/"); ok && token != "" {
			p = prefix + mac + "/…"
		}
	}
	return boot.RedactTokens(cmp.Or(p, "/"))
}

func parseRoute(p string) target {
	switch kind, rest, _ := strings.Cut(p, "/"); kind + "/" {
	case lab.PathFiles:
		return named(target{route: routeFile, name: rest})
	case lab.PathMirror:
		mirror, name, _ := strings.Cut(rest, "/")
		return named(target{route: routeMirror, mirror: mirror, name: name})
	case lab.PathBoot:
		return parseBoot(rest)
	case lab.PathConfig:
		t := parseToken(routeConfig, rest)
		return named(t)
	case lab.PathDone:
		t := parseToken(routeDone, rest)
		if t.name != "" {
			return target{}
		}
		return t
	case lab.PathReport:
		if mac, err := lab.ParseMAC(rest); err == nil {
			return target{route: routeReport, mac: mac}
		}
	case lab.PathAnswer + "/":
		if rest == "" {
			return target{route: routeAnswer}
		}
	}
	return target{}
}

func parseBoot(rest string) target {
	first, name, _ := strings.Cut(rest, "/")
	mac, err := lab.ParseMAC(first)
	if err != nil {
		return target{}
	}
	if name == lab.ScriptName || name == lab.AutoexecName || name == lab.GRUBName {
		return target{route: routeScript, mac: mac, name: name}
	}
	return named(target{route: routeFirmware, mac: mac, name: name})
}

func parseToken(r route, rest string) target {
	first, rest, _ := strings.Cut(rest, "/")
	token, name, _ := strings.Cut(rest, "/")
	mac, err := lab.ParseMAC(first)
	if err != nil || token == "" {
		return target{}
	}
	return target{route: r, mac: mac, token: token, name: name}
}

// named refuses a target whose name would not stay where it belongs.
func named(t target) target {
	if t.route == routeNone || t.name == "." || !fs.ValidPath(t.name) {
		return target{}
	}
	return t
}

// String returns the path in its one spelling, the token left out: what logs and events may hold.
func (t target) String() string {
	switch t.route {
	case routeFile:
		return lab.PathFiles + t.name
	case routeMirror:
		return lab.PathMirror + t.mirror + "/" + t.name
	case routeScript, routeFirmware:
		return lab.BootPath(t.mac, t.name)
	case routeConfig:
		return lab.PathConfig + t.mac.Hyphens() + "/…/" + t.name
	case routeDone:
		return lab.PathDone + t.mac.Hyphens() + "/…"
	case routeReport:
		return lab.PathReport + t.mac.Hyphens()
	case routeAnswer:
		return lab.PathAnswer
	}
	return t.name
}
