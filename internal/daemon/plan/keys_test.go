package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// objects returns pointers to all objects of a lab that have keys of their own, itself included.
func objects(l *lab.Lab) (all []any) {
	all = append(all, l)
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Pointer && f.Name != "Warnings" && f.Name != "IfMissing" {
			for j := range v.Field(i).Len() {
				all = append(all, v.Field(i).Index(j).Interface())
			}
		}
	}
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			all = append(all, p)
		}
	}
	return all
}

// eachLeaf calls visit for each field of a struct that holds no fields of its own, of lists their first element, with the names of the fields that lead
// to it, such as Balancer.Check and Check.Path. It skips places, what is unexported, and other objects of the lab.
func eachLeaf(v reflect.Value, path []string, visit func(path []string, v reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[lab.Pos]() {
			continue
		}
		below := append(slices.Clone(path), v.Type().Name()+"."+f.Name)
		x := v.Field(i)
		if x.Kind() == reflect.Slice && x.Len() > 0 && x.Type() != reflect.TypeFor[lab.Problems]() {
			x = x.Index(0)
		}
		if x.Kind() == reflect.Pointer && !x.IsNil() && isPart(x.Type()) {
			x = x.Elem()
		}
		if x.Kind() == reflect.Struct && hasExported(x.Type()) {
			eachLeaf(x, below, visit)
		} else {
			visit(below, x)
		}
	}
}

// isPart reports whether a pointer leads to a part of its owner.
func isPart(t reflect.Type) bool {
	return t == reflect.TypeFor[*lab.VM]() || t == reflect.TypeFor[*lab.BMC]() || t == reflect.TypeFor[*lab.ACME]() || t == reflect.TypeFor[*lab.LibvirtNetwork]()
}

func hasExported(t reflect.Type) bool {
	return slices.ContainsFunc(reflect.VisibleFields(t), reflect.StructField.IsExported)
}

// fill gives each field of an object a value: of lists one element, of parts each field; of other objects it sets the name.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("10.0.0.9")))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("10.0.0.9:99")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/24")))
		return
	case lab.Pattern:
		p, err := lab.ParsePattern("a*")
		if err != nil {
			t.Fatal(err)
		}
		v.Set(reflect.ValueOf(p))
		return
	case lab.MACPattern:
		p, err := lab.ParseMACPattern("52:54:00:*:*:*")
		if err != nil {
			t.Fatal(err)
		}
		v.Set(reflect.ValueOf(p))
		return
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{"rack": "r1"}))
		return
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"rack": "r1"}))
		return
	case map[string]lab.Pos, lab.Problems, *lab.Problem:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int8:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		v.SetUint(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Array:
		fill(t, v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if isPart(v.Type()) {
			fill(t, v.Elem())
			return
		}
		for _, name := range []string{"Name", "Origin", "Path"} {
			if f := v.Elem().FieldByName(name); f.IsValid() {
				f.SetString("other")
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Type != reflect.TypeFor[lab.Pos]() {
				fill(t, v.Field(i))
			}
		}
	default:
		t.Fatalf("fill %s", v.Type())
	}
}

// filled returns a lab with one object of each kind, all of whose fields are set.
func filled(t *testing.T) *lab.Lab {
	t.Helper()
	l := &lab.Lab{}
	fill(t, reflect.ValueOf(l).Elem())
	for _, o := range objects(l)[1:] {
		fill(t, reflect.ValueOf(o).Elem())
	}
	n := l.Networks[0]
	n.Pools[0].Network = n
	fill(t, reflect.ValueOf(n.Pools[0]).Elem())
	n.Pools[0].Network = n
	return l
}

// otherValue returns a value of the type of v that differs from it.
func otherValue(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	next := reflect.New(v.Type()).Elem()
	switch x := v.Interface().(type) {
	case netip.Addr:
		if !x.IsValid() {
			x = netip.MustParseAddr("10.0.0.9")
		}
		return reflect.ValueOf(x.Next())
	case netip.AddrPort:
		return reflect.ValueOf(netip.AddrPortFrom(x.Addr(), x.Port()+1))
	case netip.Prefix:
		return reflect.ValueOf(netip.PrefixFrom(x.Addr(), max(x.Bits(), 9)-1))
	case lab.Pattern:
		p, _ := lab.ParsePattern("b*")
		return reflect.ValueOf(p)
	case lab.MACPattern:
		p, _ := lab.ParseMACPattern("52:55:00:*:*:*")
		return reflect.ValueOf(p)
	case lab.Arch:
		a, _ := lab.ParseArch("9")
		return reflect.ValueOf(a)
	case map[string]any:
		return reflect.ValueOf(map[string]any{"rack": []any{x["rack"], 2}})
	case map[string]string:
		return reflect.ValueOf(map[string]string{"rack": "r2"})
	}
	switch v.Kind() {
	case reflect.String:
		next.SetString(v.String() + "x")
	case reflect.Bool:
		next.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int8:
		next.SetInt(v.Int() + 1<<20) // a size is shown in KiB
	case reflect.Uint64:
		next.SetUint(v.Uint() + 1<<20)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint:
		next.SetUint(v.Uint() + 1)
	case reflect.Array:
		next.Set(v)
		next.Index(v.Len() - 1).Set(otherValue(t, v.Index(v.Len()-1)))
	case reflect.Pointer:
		next.Set(reflect.New(v.Type().Elem()))
		next.Elem().Set(v.Elem())
		name := next.Elem().FieldByName("Name")
		name.SetString(name.String() + "x")
	default:
		t.Fatalf("no other value for %s", v.Type())
	}
	return next
}

// TestKeysHaveEveryField: whatever field of a lab changes, its key differs, unless the text of the plan shows the field (TestTextShows) or it follows
// from others.
func TestKeysHaveEveryField(t *testing.T) {
	t.Parallel()
	l := filled(t)
	before := plan.KeysOf(l, "")
	visited := 0
	for _, o := range objects(l) {
		shown := plan.Text(o)
		eachLeaf(reflect.ValueOf(o).Elem(), nil, func(path []string, v reflect.Value) {
			if slices.ContainsFunc(path, func(field string) bool { return shown[field] || plan.Derived[field] || isObject(field) }) {
				return
			}
			visited++
			was := reflect.ValueOf(v.Interface())
			v.Set(otherValue(t, v))
			if got := plan.DiffKeys(before, plan.KeysOf(l, "")); len(got) == 0 {
				t.Errorf("a change of %s is no change of a key", strings.Join(path, ", "))
			}
			v.Set(was)
		})
	}
	if visited < 150 {
		t.Errorf("%d fields were changed", visited)
	}
}

// isObject reports whether a field lists objects, which objects returns.
func isObject(field string) bool {
	name, ofLab := strings.CutPrefix(field, "Lab.")
	f, _ := reflect.TypeFor[lab.Lab]().FieldByName(name)
	return field == "Network.Pools" || ofLab && f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Pointer
}

// TestTextShows: the fields that are no keys because the text of a plan shows them are shown there: each changes it.
func TestTextShows(t *testing.T) {
	t.Parallel()
	seen, changed := map[string]bool{}, map[string]bool{}
	data, err := os.ReadFile("testdata/keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	render := func(l *lab.Lab) string {
		s, err := snapshot.Compile(l)
		if err != nil {
			return ""
		}
		return text(t, of(t, s, ""))
	}
	l, err := load.Parse("lab.yaml", data, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := render(l)
	for _, o := range objects(l) {
		shown := plan.Text(o)
		eachLeaf(reflect.ValueOf(o).Elem(), nil, func(path []string, v reflect.Value) {
			i := slices.IndexFunc(path, func(field string) bool { return shown[field] })
			if i < 0 || slices.ContainsFunc(path, func(field string) bool {
				return plan.Derived[field] || plan.Recorded[field] || isObject(field)
			}) {
				return
			}
			seen[path[i]] = true
			if v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer && v.IsNil() {
				return // another object has a value
			}
			was := reflect.ValueOf(v.Interface())
			v.Set(otherValue(t, v))
			for _, other := range objects(l) {
				if other := reflect.ValueOf(other); other.Type() == v.Type() && !other.Equal(was) {
					v.Set(other)
				}
			}
			after := render(l)
			if after == before {
				t.Errorf("a change of %s of %s changes nothing in the plan", strings.Join(path, ", "), reflect.ValueOf(o).Elem().FieldByName("Name"))
			}
			changed[path[i]] = changed[path[i]] || after != "" // else it makes no lab: another object shows it
			v.Set(was)
		})
	}
	for _, field := range slices.Sorted(maps.Keys(seen)) {
		if !changed[field] {
			t.Errorf("testdata/keys.yaml has no value of %s", field)
		}
	}
}

// TestKeyNames: keys are those of the lab file.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	var schema any
	if err := json.Unmarshal(load.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"s": true, "other": true, "rack": true}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				if of, ok := below.(map[string]any); ok && key == "properties" {
					for name := range of {
						known[name] = true
					}
				}
				walk(below)
			}
		case []any:
			for _, below := range v {
				walk(below)
			}
		}
	}
	walk(schema)
	for key := range plan.KeysOf(filled(t), "") {
		for part := range strings.SplitSeq(key, ".") {
			if !known[part] {
				t.Errorf("%s: no lab file has a key %s", key, part)
			}
		}
	}
}

func TestDiffKeys(t *testing.T) {
	t.Parallel()
	got := plan.DiffKeys(
		map[string]string{"balancers.web.sticky": "1", "hosts.a.bmc": "1", "mirrors.debian": "1", "mirrors.debian.url": "1", "networks.n.lease": "1"},
		map[string]string{"balancers.web.sticky": "2", "hosts.a.bmc": "1", "hosts.a.bmc.insecure": "1", "hosts.a.vm": "1", "hosts.a.vm.arch": "1", "networks.n.lease": "1"},
	)
	want := []plan.Change{
		{Section: "LAB FILE", Op: "~", Line: "balancers.web.sticky: another value"},
		{Section: "LAB FILE", Op: "+", Line: "hosts.a.bmc.insecure"},
		{Section: "LAB FILE", Op: "+", Line: "hosts.a.vm"},
		{Section: "LAB FILE", Op: "-", Line: "mirrors.debian"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := plan.DiffKeys(nil, nil); got == nil || len(got) > 0 {
		t.Errorf("no difference is %v: want an empty list, for JSON", fmt.Sprint(got))
	}
}

// TestRecordsShow: the names and addresses of hosts are no keys, as the text shows the DNS records that follow from them.
func TestRecordsShow(t *testing.T) {
	t.Parallel()
	before := text(t, of(t, compile(t), ""))
	for _, edit := range [][]string{
		{"fd00:16::21", "fd00:16::22"}, {"10.9.0.7", "10.9.0.8"}, {"aliases: [etcd-0]", "aliases: [etcd-1]"}, {"  cname:", "  cname2:"},
		{"domain: lab.example", "domain: lab2.example"}, {"cluster: prod, role: worker", "role: worker"},
	} {
		if text(t, of(t, compile(t, edit...), "")) == before {
			t.Errorf("a change of %q to %q changes nothing in the plan", edit[0], edit[1])
		}
	}
}

// TestKeysOfHost: of one host, the keys are its own and those of what it uses.
func TestKeysOfHost(t *testing.T) {
	t.Parallel()
	keys := plan.KeysOf(compile(t).Lab, "cp-0")
	for key, want := range map[string]bool{
		"hosts.cp-0.vm.firmware": true, "networks.metal": true, "networks.metal.pools.guests": true, "clusters.prod.kind": true, "hypervisors.kvm1.bridges": true,
		"balancers.prod-api.timeouts.idle": true, "profiles.rhcos.kernel": true,
		"hosts.worker-0": false, "networks.far": false, "balancers.web": false, "balancers.web.match.host": false, "profiles.live": false, "dns.cache.entries": false,
	} {
		if _, got := keys[key]; got != want {
			t.Errorf("%s is a key of cp-0: %v, want %v", key, got, want)
		}
	}
}
