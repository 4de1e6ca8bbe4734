package lab

import (
	"fmt"
	"strings"
)

// Summary says in a few words what the lab holds: "8 hosts, 1 network, 2 clusters".
func (l *Lab) Summary() string {
	parts := []string{plural(len(l.Hosts), "host"), plural(len(l.Networks), "network")}
	for _, more := range []struct {
		n    int
		noun string
	}{{len(l.Clusters), "cluster"}, {len(l.Profiles), "profile"}, {len(l.Balancers), "balancer"}, {len(l.Zones), "zone"}} {
		if more.n > 0 {
			parts = append(parts, plural(more.n, more.noun))
		}
	}
	return strings.Join(parts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
