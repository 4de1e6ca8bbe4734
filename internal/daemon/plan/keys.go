package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/bootlab/bootlab/internal/lab"
)

// KeysOf returns the keys of a lab that hold a value which the text of its plan does not show, such as balancers.web.sticky, each with
// a fingerprint of the value; of host, those that concern it. No field of the lab can be forgotten: a field is among the keys unless
// text or derived names it.
func KeysOf(l *lab.Lab, host string) map[string]string {
	w := &keyWriter{keys: map[string]string{}, dir: l.Dir}
	if h := l.Find(host); h != nil {
		w.host = h
	}
	w.fields("", reflect.ValueOf(l).Elem(), text(l))
	return w.keys
}

// fieldSet returns the fields of a type, as "Host.FQDN", from "Host: FQDN MACs".
func fieldSet(lines ...string) map[string]bool {
	set := map[string]bool{}
	for _, line := range lines {
		of, names, _ := strings.Cut(line, ": ")
		for name := range strings.FieldsSeq(names) {
			set[of+"."+name] = true
		}
	}
	return set
}

// derived are fields that follow from others, or that no reload changes.
var derived = fieldSet(
	"Lab: Dir Files Appliance StoreAt Certificates Warnings IfMissing", // a reload keeps the appliance; files of certificates are balancers' and Redfish's
	"Network: BaseURL NoTFTP", // of the appliance
	"Profile: Keys",           // places
	"Pool: Network",
	"Host: Serial",
	"Cluster: Hosts API InPlace NoBootstrap", // InPlace: of a document
	"Zone: Origin Derived Records",
)

// recorded are fields of hosts that follow from the lab file as their DNS records do.
var recorded = fieldSet("Host: FQDN Domain IP IP6 NICName Aliases")

// always are fields whose change the text of a plan shows itself.
var always = fieldSet(
	"Lab: Domain",
	"Network: Subnet Interface Address Router DHCP",
	"Pool: Range MACs Archs VendorClasses UserClasses CircuitIDs RemoteIDs PerPort Profile",
	"Profile: OS Image ConfigReads InstallTo Install",
	"Host: MACs Routes Options Lease Ignored",
	"NIC: MAC IP FQDN Network",
	"Hypervisor: URI",
	"DNS: Allow Transfer Notify",
	"NameServer: Addr TLS File",
	"Zone: Lines File",
	"Balancer: Listen Mode Balance Names",
	"Backend: Name Addr Backup Weight MaxConnections",
	"Check: Kind Port",
)

// text returns the fields that the text of a plan shows of an object: always, and what depends on the others.
func text(object any) map[string]bool {
	shown := maps.Clone(always)
	add := func(when bool, more map[string]bool) {
		if when {
			maps.Copy(shown, more)
		}
	}
	switch o := object.(type) {
	case *lab.Network:
		add(o.DHCP != lab.DHCPOff, fieldSet("Network: DNS Search NTP MTU Lease Routes Options"))
		add(o.DHCP != lab.DHCPOff && len(o.Pools) > 0, fieldSet("Network: Probe"))
	case *lab.Pool:
		add(o.Network.DHCP != lab.DHCPOff, fieldSet("Pool: Lease Routes Options"))
	case *lab.Host:
		add(len(o.MACs) > 0, fieldSet("Host: IP Network Role Profile"))
		add(o.Domain != "", recorded)
		add(o.VM != nil, fieldSet("VM: CPUs Memory"))
	case *lab.Balancer:
		http := o.Check.Kind == lab.CheckHTTP || o.Check.Kind == lab.CheckHTTPS
		tls := o.Check.Kind == lab.CheckTLS || o.Check.Kind == lab.CheckHTTPS
		add(o.Check.Kind != lab.CheckNone, fieldSet("Check: Interval Rise Fall"))
		add(http, fieldSet("Check: Path"))
		add(o.Cluster == nil, fieldSet("Balancer: SendProxy AcceptProxy MaxConnections", "Timeouts: Connect Idle"))
		add(o.Cluster == nil && o.Check.Kind != lab.CheckNone, fieldSet("Check: Timeout"))
		add(o.Cluster == nil && http, fieldSet("Check: Expect Host"))
		add(o.Cluster == nil && tls, fieldSet("Check: SNI CAFile"))
	}
	return shown
}

// A keyWriter collects keys.
type keyWriter struct {
	keys map[string]string
	dir  string    // of the lab file: its paths are relative to it
	host *lab.Host // whose keys are asked for; nil: all
}

// fields adds the keys below key of a struct, but for those that are shown.
func (w *keyWriter) fields(key string, v reflect.Value, shown map[string]bool) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name := t.Name() + "." + f.Name
		if !f.IsExported() || f.Type == reflect.TypeFor[lab.Pos]() || derived[name] || shown[name] {
			continue
		}
		key := below(key, keyName(t.Name(), f.Name))
		switch {
		case listsObjects(t, f):
			for j := range v.Field(i).Len() {
				w.object(key, v.Field(i).Index(j))
			}
		case w.host == nil || t != reflect.TypeFor[lab.Lab]():
			w.add(key, v.Field(i), shown)
		}
	}
}

// add adds the keys of a value: those of its fields, or its own.
func (w *keyWriter) add(key string, v reflect.Value, shown map[string]bool) {
	switch {
	case v.IsZero():
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			w.set(below(key, k.String()), w.value(v.MapIndex(k), shown))
		}
	case v.Kind() == reflect.Pointer && objectName(v) == "":
		w.set(key, "set")
		w.fields(key, v.Elem(), shown)
	case v.Kind() == reflect.Struct && hasFields(v.Type()):
		w.fields(key, v, shown)
	default:
		w.set(key, w.value(v, shown))
	}
}

// listsObjects reports whether a field of a type lists what has a name and keys of its own in the lab file.
func listsObjects(of reflect.Type, f reflect.StructField) bool {
	if f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() != reflect.Pointer {
		return false
	}
	return of == reflect.TypeFor[lab.Lab]() || of == reflect.TypeFor[lab.Network]()
}

// object adds the keys of one object. What is derived from others has no key of its own: the text shows that it exists.
func (w *keyWriter) object(list string, v reflect.Value) {
	o := v.Interface()
	if w.host != nil && !concerns(o, w.host) {
		return
	}
	key := below(list, objectName(v))
	w.fields(key, v.Elem(), text(o))
	if b, ok := o.(*lab.Balancer); ok && b.Cluster != nil {
		return
	}
	if z, ok := o.(*lab.Zone); ok && z.Derived {
		return
	}
	w.set(key, "set")
}

// objectName returns the name of what others refer to by name; empty: v is a part of its owner.
func objectName(v reflect.Value) string {
	switch o := v.Interface().(type) {
	case *lab.Image:
		return o.Path
	case *lab.Zone:
		return strings.TrimSuffix(o.Origin, ".")
	case *lab.VM, *lab.BMC, *lab.ACME, *lab.LibvirtNetwork:
		return ""
	}
	return v.Elem().FieldByName("Name").String()
}

// hasFields reports whether a struct has fields to walk; an address or a pattern has none.
func hasFields(t reflect.Type) bool {
	return slices.ContainsFunc(reflect.VisibleFields(t), reflect.StructField.IsExported)
}

// value writes a value without what is shown; empty: nothing is left of it.
func (w *keyWriter) value(v reflect.Value, shown map[string]bool) string {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return w.value(v.Elem(), shown)
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		if name := objectName(v); name != "" {
			return name
		}
		return w.value(v.Elem(), shown)
	case reflect.String:
		return strconv.Quote(strings.TrimPrefix(v.String(), w.dir+"/"))
	case reflect.Slice:
		return w.elements(v, shown)
	case reflect.Map:
		var all []string
		for _, k := range v.MapKeys() {
			all = append(all, fmt.Sprintf("%q: %s", k, w.value(v.MapIndex(k), shown)))
		}
		slices.Sort(all)
		return fmt.Sprint(all)
	case reflect.Struct:
		if hasFields(v.Type()) {
			part := &keyWriter{keys: map[string]string{}, dir: w.dir}
			part.fields("", v, shown)
			if len(part.keys) == 0 {
				return ""
			}
			return fmt.Sprint(part.keys) // sorted
		}
	}
	return fmt.Sprint(v)
}

// elements writes a list, each value with its place.
func (w *keyWriter) elements(v reflect.Value, shown map[string]bool) string {
	var all []string
	for i := range v.Len() {
		if text := w.value(v.Index(i), shown); text != "" {
			all = append(all, strconv.Itoa(i)+": "+text)
		}
	}
	if len(all) == 0 && v.Len() > 0 {
		return ""
	}
	return fmt.Sprint(all)
}

// set adds what is the value of a key, or a part of it.
func (w *keyWriter) set(key, value string) {
	if value != "" {
		sum := sha256.Sum256([]byte(w.keys[key] + value))
		w.keys[key] = hex.EncodeToString(sum[:8])
	}
}

// below returns a key below another.
func below(above, key string) string { return strings.TrimPrefix(above+"."+key, ".") }

// keyNames are the keys of fields that have other names than these.
var keyNames = map[string]string{
	"Lab.Name":  "lab",
	"Lab.Zones": "dns.zones", "Mirror.URLs": "url", "Image.URLs": "url", "Host.Local": "local_boot", "Host.RoleSynonym": "role", "Host.NICs": "nics", "Host.Named": "nics",
	"Host.IP6": "ip6", "Balancer.Certificates": "tls", "Balancer.ACME": "tls.acme", "Balancer.Protocol": "backend_protocol", "BackendTLS.On": "ca_file", "BackendTLS.Unverified": "verify", "Cluster.Names": "balancer",
	"Zone.ForwardMissing": "forward", "DNS.Keys": "keys", "DNS.CacheEntries": "cache.entries", "DNS.CacheSize": "cache.size", "VM.Candidates": "hypervisor", "VM.Shared": "shared_memory",
	"VM.HugePages": "hugepages", "Timeouts.KeepAlive": "keepalive", "Network.Subnet6": "subnet6", "Cluster.SNI": "match", "Zone.UpdateReserved": "update_reserved",
}

// keyName returns the key of the lab file for a field.
func keyName(of, field string) string {
	if name, ok := keyNames[of+"."+field]; ok {
		return name
	}
	var b strings.Builder
	runes := []rune(field)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// keySection is the heading of keys that differ.
const keySection = "LAB FILE"

// DiffKeys returns the keys that differ between two labs. Of what comes or goes as a whole, it returns the first key alone.
func DiffKeys(from, to map[string]string) []Change {
	changes := []Change{}
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		before, was := from[key]
		after, is := to[key]
		c := Change{Section: keySection, Op: "~", Line: key + ": another value"}
		switch {
		case before == after:
			continue
		case !was:
			c.Op, c.Line = "+", key
		case !is:
			c.Op, c.Line = "-", key
		}
		if !slices.ContainsFunc(changes, func(above Change) bool { return above.Op == c.Op && strings.HasPrefix(c.Line, above.Line+".") }) {
			changes = append(changes, c)
		}
	}
	return changes
}
