package doctor

import (
	"context"
	"slices"
	"sync"

	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// resolvConf asks the servers that a file of dns.forward names, without this appliance itself, all at once.
func resolvConf(ctx context.Context, l *lab.Lab, file string) []Finding {
	text, err := regular.Read(file, regular.Small)
	if err != nil {
		return []Finding{fail(file, err.Error(), "set dns.forward")}
	}
	named := lab.NameServers(text)
	servers := slices.DeleteFunc(slices.Clone(named), l.AnswersDNS)
	switch {
	case len(named) == 0:
		return []Finding{fail(file, "names no server: clients get REFUSED", "add a nameserver line to it, or set dns.forward to the addresses of servers")}
	case len(servers) == 0:
		return []Finding{fail(file, "names only this appliance itself: clients get REFUSED", "set dns.forward to the addresses of servers outside")}
	}
	all := make([]Finding, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() {
			all[i] = upstream(ctx, server)
			all[i].Subject += " (" + file + ")"
		})
	}
	wg.Wait()
	return all
}
