package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestStages: "stage" in JSON is that of a boot, wherever it stands; what a machine is stands in "machine_stage".
func TestStages(t *testing.T) {
	t.Parallel()
	for _, v := range []any{api.Host{}, api.Boot{}, api.Diagnosis{}, api.ClusterMachine{}, api.UnknownMachine{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "stage" && f.Type != reflect.TypeFor[event.Stage]() {
				t.Errorf("%T: %s, which is no stage of a boot, is called stage", v, f.Name)
			}
		}
	}
}
