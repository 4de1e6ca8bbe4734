package virt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// text makes a call that returns a text.
func (r *remote) text(ctx context.Context, req request) (string, error) {
	resp, err := r.call(ctx, req)
	if err != nil {
		return "", err
	}
	return resp.Text, nil
}

// do makes a call that returns nothing.
func (r *remote) do(ctx context.Context, req request) error {
	_, err := r.call(ctx, req)
	return err
}

// Domains implements Hypervisor.
func (r *remote) Domains(ctx context.Context) ([]Domain, error) {
	resp, err := r.call(ctx, request{Method: methodDomains})
	if err != nil {
		return nil, err
	}
	return resp.Domains, nil
}

// Networks implements Hypervisor.
func (r *remote) Networks(ctx context.Context) ([]Network, error) {
	resp, err := r.call(ctx, request{Method: methodNetworks})
	if err != nil {
		return nil, err
	}
	return resp.Networks, nil
}

// Capabilities implements Hypervisor.
func (r *remote) Capabilities(ctx context.Context, arch, machine, domainType string) (string, error) {
	return r.text(ctx, request{Method: methodCapabilities, Arch: arch, Name: machine, Type: domainType})
}

// Interfaces implements Hypervisor.
func (r *remote) Interfaces(ctx context.Context) ([]string, error) {
	resp, err := r.call(ctx, request{Method: methodInterfaces})
	if err != nil {
		return nil, err
	}
	return resp.Names, nil
}

// DefineNetwork implements Hypervisor.
func (r *remote) DefineNetwork(ctx context.Context, xml string) error {
	return r.do(ctx, request{Method: methodDefineNet, XML: xml})
}

// DeleteNetwork implements Hypervisor.
func (r *remote) DeleteNetwork(ctx context.Context, uuid string) error {
	return r.do(ctx, request{Method: methodDeleteNet, UUID: uuid})
}

// Find implements Hypervisor.
func (r *remote) Find(ctx context.Context, uuid, name string) ([]Domain, error) {
	resp, err := r.call(ctx, request{Method: methodFind, UUID: uuid, Name: name})
	if err != nil {
		return nil, err
	}
	return resp.Domains, nil
}

// XML implements Hypervisor.
func (r *remote) XML(ctx context.Context, uuid string) (string, error) {
	return r.text(ctx, request{Method: methodXML, UUID: uuid})
}

// Define implements Hypervisor.
func (r *remote) Define(ctx context.Context, xml string) error {
	return r.do(ctx, request{Method: methodDefine, XML: xml})
}

// SetAutostart implements Hypervisor.
func (r *remote) SetAutostart(ctx context.Context, uuid string, on bool) error {
	return r.do(ctx, request{Method: methodAutostart, UUID: uuid, On: on})
}

// Start implements Hypervisor.
func (r *remote) Start(ctx context.Context, uuid string) error {
	return r.do(ctx, request{Method: methodStart, UUID: uuid})
}

// StartWith implements Hypervisor.
func (r *remote) StartWith(ctx context.Context, xml string) error {
	return r.do(ctx, request{Method: methodStartWith, XML: xml})
}

// SetBootOrder implements Hypervisor.
func (r *remote) SetBootOrder(ctx context.Context, uuid string, order map[string]uint) error {
	return r.do(ctx, request{Method: methodSetBootOrder, UUID: uuid, Order: order})
}

// Shutdown implements Hypervisor.
func (r *remote) Shutdown(ctx context.Context, uuid string) error {
	return r.do(ctx, request{Method: methodShutdown, UUID: uuid})
}

// Destroy implements Hypervisor.
func (r *remote) Destroy(ctx context.Context, uuid string) error {
	return r.do(ctx, request{Method: methodDestroy, UUID: uuid})
}

// Undefine implements Hypervisor.
func (r *remote) Undefine(ctx context.Context, uuid string) error {
	return r.do(ctx, request{Method: methodUndefine, UUID: uuid})
}

// Volumes implements Hypervisor.
func (r *remote) Volumes(ctx context.Context, ids []VolumeID) ([]Volume, error) {
	return r.volumes(ctx, request{Method: methodVolumes, Volumes: ids}, len(ids))
}

// VolumeAt implements Hypervisor.
func (r *remote) VolumeAt(ctx context.Context, path string) (Volume, error) {
	volumes, err := r.volumes(ctx, request{Method: methodVolumeAt, Name: path}, 1)
	if err != nil {
		return Volume{}, err
	}
	return volumes[0], nil
}

// volumes makes a call that returns n volumes.
func (r *remote) volumes(ctx context.Context, req request, n int) ([]Volume, error) {
	if n == 0 {
		return nil, nil
	}
	resp, err := r.call(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Volumes) != n {
		return nil, fmt.Errorf("%s on %s: %d volumes in the answer, want %d", req.Method, r.uri, len(resp.Volumes), n)
	}
	return resp.Volumes, nil
}

// Grow implements Hypervisor.
func (r *remote) Grow(ctx context.Context, uuid, device string, id VolumeID, bytes uint64) error {
	return r.do(ctx, request{Method: methodGrow, UUID: uuid, Device: device, Pool: id.Pool, Name: id.Name, Bytes: bytes})
}

// CreateVolume implements Hypervisor.
func (r *remote) CreateVolume(ctx context.Context, pool, xml string) (string, error) {
	return r.text(ctx, request{Method: methodCreateVolume, Pool: pool, XML: xml})
}

// DeleteVolume implements Hypervisor.
func (r *remote) DeleteVolume(ctx context.Context, pool, name string) error {
	return r.do(ctx, request{Method: methodDeleteVolume, Pool: pool, Name: name})
}

// UploadVolume implements Hypervisor. A large upload has a process of its own, so that other calls go on.
func (r *remote) UploadVolume(ctx context.Context, pool, xml string, content io.Reader, n uint64) (string, error) {
	req := request{Method: methodUploadVolume, Pool: pool, XML: xml, Bytes: n}
	if n <= smallUpload {
		req.Content = make([]byte, n)
		if _, err := io.ReadFull(content, req.Content); err != nil {
			return "", fmt.Errorf("read the content: %w", err)
		}
		return r.text(ctx, req)
	}
	select {
	case r.uploads <- struct{}{}:
		defer func() { <-r.uploads }()
	case <-ctx.Done():
		return "", fmt.Errorf("%d uploads are in progress: %w", maxUploads, ctx.Err())
	}
	return r.stream(ctx, req, content)
}

// stream makes an upload in a process of its own, which reads the content from a pipe.
func (r *remote) stream(ctx context.Context, req request, content io.Reader) (string, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	p, err := r.connect(ctx, out, request{})
	_ = out.Close()
	if err != nil {
		_ = in.Close()
		return "", Unreachable(fmt.Errorf("connect to %s: %w", r.uri, err))
	}
	defer r.forget(p)
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyN(in, content, int64(req.Bytes))
		copied <- errors.Join(err, in.Close())
	}()
	resp, err := p.call(ctx, req, 24*time.Hour)
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
	return resp.Text, nil
}
