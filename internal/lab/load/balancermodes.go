package load

import "github.com/bootlab/bootlab/internal/lab"

// A modeKey is a key of a balancer that not every mode has.
type modeKey struct {
	name string
	set  bool
	at   spot
}

// modeKeys reports keys that the mode of a balancer does not have.
func (r *resolver) modeKeys(raw *rawBalancer, mode lab.BalanceMode, key string) {
	has := "no mode, which means tcp"
	if raw.Mode.set() {
		has = "mode " + string(mode)
	}
	refuse := func(keys []modeKey, format string, args ...any) {
		for _, k := range keys {
			if k.set {
				r.fail(k.at, key+"."+k.name, format, args...)
			}
		}
	}
	if mode != lab.ModeHTTP {
		refuse(httpKeys(raw), "is for mode http, and this balancer has %s: add mode: http", has)
		refuse([]modeKey{{"tls", raw.TLS.V != nil, raw.TLS.spot}, {"backend_tls", raw.BackendTLS.V != nil, raw.BackendTLS.spot}},
			"is for HTTP alone, and this balancer has %s: add mode: http, or leave it out for another protocol, whose TLS the servers end", has)
	}
	if mode == lab.ModeUDP {
		refuse(connectionKeys(raw), "is for connections, which mode udp does not have: leave it out")
		return
	}
	refuse([]modeKey{{"responses", raw.Responses.ok(), raw.Responses.spot}}, "is for mode udp, and this balancer has %s: leave it out", has)
	if raw.Check.Kind.V == lab.CheckDNS {
		r.fail(raw.Check.Kind.spot, key+".check.kind", "dns is a query over UDP, and this balancer has %s: want tcp", has)
	}
}

// httpKeys returns the keys of mode http alone, without those about TLS.
func httpKeys(raw *rawBalancer) []modeKey {
	t := &raw.Timeouts
	return []modeKey{
		{"timeouts.server", t.Server.ok(), t.Server.spot}, {"timeouts.request", t.Request.ok(), t.Request.spot},
		{"timeouts.body", t.Body.ok(), t.Body.spot}, {"timeouts.keepalive", t.Keep.ok(), t.Keep.spot},
		{"backend_protocol", raw.Protocol.ok(), raw.Protocol.spot},
		{"redirect", raw.Redirect.ok(), raw.Redirect.spot}, {"sticky", raw.Sticky.ok(), raw.Sticky.spot},
		{"trusted_proxies", raw.TrustedProxies.set(), raw.TrustedProxies.spot},
	}
}

// connectionKeys returns the keys that modes tcp and http have, and udp has not.
func connectionKeys(raw *rawBalancer) []modeKey {
	t := &raw.Timeouts
	return []modeKey{
		{"send_proxy", raw.SendProxy.ok(), raw.SendProxy.spot}, {"accept_proxy", raw.AcceptProxy.set(), raw.AcceptProxy.spot},
		{"match.sni", raw.Match.SNI.set(), raw.Match.SNI.spot}, {"queue", raw.Queue.ok(), raw.Queue.spot},
		{"timeouts.connect", t.Connect.ok(), t.Connect.spot}, {"timeouts.queue", t.Queue.ok(), t.Queue.spot},
		{"on_down", raw.OnDown.ok(), raw.OnDown.spot}, {"log", raw.Log.ok(), raw.Log.spot},
		{"check.silence", raw.Check.Silence.ok(), raw.Check.Silence.spot},
	}
}
