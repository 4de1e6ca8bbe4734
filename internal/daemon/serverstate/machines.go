package serverstate

import (
	"context"
	"maps"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/virt"
)

// ByHost is a virt.Store: one value for each host, as JSON below a prefix.
type ByHost[T comparable] struct {
	store  store.Store
	saver  *records.Saver
	prefix string
}

// The prefixes of records.
const (
	placementPrefix = "vm/"
	nextBootPrefix  = "vmboot/"
	startPrefix     = "vmstart/"
	AnsweredPrefix  = "vmseen/" // by hypervisor
)

// Placements returns where virtual machines were, by host.
func Placements(s store.Store, saver *records.Saver) ByHost[virt.Placement] {
	return ByHost[virt.Placement]{s, saver, placementPrefix}
}

// NextBoots returns how virtual machines start next, by host.
func NextBoots(s store.Store, saver *records.Saver) ByHost[virt.NextBoot] {
	return ByHost[virt.NextBoot]{s, saver, nextBootPrefix}
}

// Starts returns the starts that were asked for and have not succeeded, by host.
func Starts(s store.Store, saver *records.Saver) ByHost[virt.PendingStart] {
	return ByHost[virt.PendingStart]{s, saver, startPrefix}
}

// Answered returns which hypervisors have answered.
func Answered(s store.Store, saver *records.Saver) AnsweredHypervisors {
	return AnsweredHypervisors{ByHost[virt.Answered]{s, saver, AnsweredPrefix}}
}

// AnsweredHypervisors are the hypervisors that have answered in the life of the state that placements are in. A loss since then may have been of
// placements.
type AnsweredHypervisors struct{ ByHost[virt.Answered] }

// Load implements virt.Store.
func (s AnsweredHypervisors) Load(ctx context.Context) (map[string]virt.Answered, error) {
	all, err := s.ByHost.Load(ctx)
	maps.DeleteFunc(all, func(name string, _ virt.Answered) bool { return store.Doubtful(s.store, s.prefix+name) })
	return all, err
}

// Load returns all values, by host.
func (s ByHost[T]) Load(ctx context.Context) (map[string]T, error) {
	all := map[string]T{}
	err := records.Read(ctx, s.store, s.prefix, func(host string, v T) error {
		all[host] = v
		return nil
	})
	return all, err
}

// Put stores the value of a host; the zero value removes it.
func (s ByHost[T]) Put(_ context.Context, host string, v T) error {
	if v == *new(T) {
		return s.saver.Save(store.Op{Key: s.prefix + host, Delete: true})
	}
	return s.saver.Put(s.prefix+host, v)
}
