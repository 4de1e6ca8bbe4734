package required

import (
	"fmt"
	"path"
	"reflect"
	"slices"
)

// Fields panics with the name of the first field of deps, a struct, that is nil and not optional.
func Fields(deps any, optional ...string) {
	v := reflect.ValueOf(deps)
	t := v.Type()
	for i := range t.NumField() {
		if name := t.Field(i).Name; isNil(v.Field(i)) && !slices.Contains(optional, name) {
			panic(fmt.Sprintf("%s: %s.%s is nil", path.Base(t.PkgPath()), t.Name(), name))
		}
	}
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Func, reflect.Interface, reflect.Pointer, reflect.Map, reflect.Chan, reflect.Slice:
		return v.IsNil()
	}
	return false
}
