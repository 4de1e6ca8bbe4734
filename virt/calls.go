package virt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// do makes a call that returns nothing.
func (r *remote) do(ctx context.Context, method string, args ...any) error {
	_, err := r.call(ctx, method, args...)
	return err
}

// ask makes a call that returns something.
func ask[T any](ctx context.Context, r *remote, method string, args ...any) (result T, err error) {
	raw, err := r.call(ctx, method, args...)
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	return result, err
}

// Domains implements Hypervisor.
func (r *remote) Domains(ctx context.Context) ([]Domain, error) {
	return ask[[]Domain](ctx, r, "domains")
}

// Node implements Hypervisor.
func (r *remote) Node(ctx context.Context) (Node, error) {
	return ask[Node](ctx, r, "node")
}

// Pools implements Hypervisor.
func (r *remote) Pools(ctx context.Context) ([]Pool, error) {
	return ask[[]Pool](ctx, r, "pools")
}

// Capabilities implements Hypervisor.
func (r *remote) Capabilities(ctx context.Context, arch, machine, domainType string) (string, error) {
	return ask[string](ctx, r, "capabilities", arch, machine, domainType)
}

// Interfaces implements Hypervisor.
func (r *remote) Interfaces(ctx context.Context) ([]string, error) {
	return ask[[]string](ctx, r, "list interfaces")
}

// Networks implements Hypervisor.
func (r *remote) Networks(ctx context.Context) ([]Network, error) {
	return ask[[]Network](ctx, r, "networks")
}

// DefineNetwork implements Hypervisor.
func (r *remote) DefineNetwork(ctx context.Context, xml string) error {
	return r.do(ctx, "define network", xml)
}

// DeleteNetwork implements Hypervisor.
func (r *remote) DeleteNetwork(ctx context.Context, uuid string) error {
	return r.do(ctx, "delete network", uuid)
}

// Find implements Hypervisor.
func (r *remote) Find(ctx context.Context, uuid, name string) ([]Domain, error) {
	return ask[[]Domain](ctx, r, "find", uuid, name)
}

// XML implements Hypervisor.
func (r *remote) XML(ctx context.Context, uuid string) (string, error) {
	return ask[string](ctx, r, "xml", uuid)
}

// Define implements Hypervisor.
func (r *remote) Define(ctx context.Context, xml string) error {
	return r.do(ctx, "define", xml)
}

// SetAutostart implements Hypervisor.
func (r *remote) SetAutostart(ctx context.Context, uuid string, on bool) error {
	return r.do(ctx, "set autostart", uuid, on)
}

// Start implements Hypervisor.
func (r *remote) Start(ctx context.Context, uuid string) error {
	return r.do(ctx, "start", uuid)
}

// StartWith implements Hypervisor.
func (r *remote) StartWith(ctx context.Context, xml string) error {
	return r.do(ctx, "start with", xml)
}

// SetBootOrder implements Hypervisor.
func (r *remote) SetBootOrder(ctx context.Context, uuid string, order map[string]uint) error {
	return r.do(ctx, "set boot order", uuid, order)
}

// Shutdown implements Hypervisor.
func (r *remote) Shutdown(ctx context.Context, uuid string) error {
	return r.do(ctx, "shutdown", uuid)
}

// Destroy implements Hypervisor.
func (r *remote) Destroy(ctx context.Context, uuid string) error {
	return r.do(ctx, "destroy", uuid)
}

// Undefine implements Hypervisor.
func (r *remote) Undefine(ctx context.Context, uuid string) error {
	return r.do(ctx, "undefine", uuid)
}

// Volumes implements Hypervisor.
func (r *remote) Volumes(ctx context.Context, ids []VolumeID) ([]Volume, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	volumes, err := ask[[]Volume](ctx, r, "list volumes", ids)
	if err == nil && len(volumes) != len(ids) {
		return nil, fmt.Errorf("list volumes on %s: %d volumes in the answer, want %d", r.uri, len(volumes), len(ids))
	}
	return volumes, err
}

// VolumeAt implements Hypervisor.
func (r *remote) VolumeAt(ctx context.Context, path string) (Volume, error) {
	return ask[Volume](ctx, r, "find volume", path)
}

// Grow implements Hypervisor.
func (r *remote) Grow(ctx context.Context, uuid, device string, id VolumeID, bytes uint64) error {
	return r.do(ctx, "resize volume", uuid, device, id, bytes)
}

// CreateVolume implements Hypervisor.
func (r *remote) CreateVolume(ctx context.Context, pool, xml string) (string, error) {
	return ask[string](ctx, r, "create volume", pool, xml)
}

// DeleteVolume implements Hypervisor.
func (r *remote) DeleteVolume(ctx context.Context, pool, name string) error {
	return r.do(ctx, "delete volume", pool, name)
}

// Snapshots implements Hypervisor.
func (r *remote) Snapshots(ctx context.Context, uuid string) ([]Snapshot, error) {
	return ask[[]Snapshot](ctx, r, "list snapshots", uuid)
}

// CreateSnapshot implements Hypervisor.
func (r *remote) CreateSnapshot(ctx context.Context, uuid, xml string) error {
	return r.do(ctx, "create snapshot", uuid, xml)
}

// Revert implements Hypervisor.
func (r *remote) Revert(ctx context.Context, uuid, name string) error {
	return r.do(ctx, "revert to snapshot", uuid, name)
}

// DeleteSnapshot implements Hypervisor.
func (r *remote) DeleteSnapshot(ctx context.Context, uuid, name string) error {
	return r.do(ctx, "delete snapshot", uuid, name)
}

// UploadVolume implements Hypervisor. A large upload has a process of its own, so that other calls go on.
func (r *remote) UploadVolume(ctx context.Context, pool, xml string, content io.Reader, n uint64) (string, error) {
	if n <= smallUpload {
		small := make([]byte, n)
		if _, err := io.ReadFull(content, small); err != nil {
			return "", fmt.Errorf("read the content: %w", err)
		}
		return ask[string](ctx, r, uploadVolume, pool, xml, small, n)
	}
	select {
	case r.uploads <- struct{}{}:
		defer func() { <-r.uploads }()
	case <-ctx.Done():
		return "", fmt.Errorf("%d uploads are in progress: %w", maxUploads, ctx.Err())
	}
	return r.stream(ctx, pool, xml, content, n)
}

const uploadVolume = "upload volume"

// stream makes an upload in a process of its own, which reads the content from a pipe.
func (r *remote) stream(ctx context.Context, pool, xml string, content io.Reader, n uint64) (path string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	p, err := r.connect(ctx, out, connection{})
	_ = out.Close()
	if err != nil {
		_ = in.Close()
		return "", Unreachable(fmt.Errorf("connect to %s: %w", r.uri, err))
	}
	defer r.forget(p)
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyN(in, content, int64(n))
		copied <- errors.Join(err, in.Close())
	}()
	resp, err := p.call(ctx, 24*time.Hour, uploadVolume, pool, xml, nil, n)
	if err != nil {
		p.kill()
	}
	read := <-copied // it ends when its pipe has no reader any more
	if errors.Is(read, syscall.EPIPE) {
		read = nil // the other error says why
	}
	switch {
	case err != nil && cmp.Or(ctx.Err(), read) != nil:
		return "", cmp.Or(ctx.Err(), read)
	case err != nil:
		return "", err
	case read != nil:
		return "", fmt.Errorf("read the content: %w", read)
	case resp.Err != "":
		return "", errors.New(resp.Err)
	}
	return path, json.Unmarshal(resp.Result, &path)
}
