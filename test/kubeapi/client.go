package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	"k8s.io/sample-apiserver/pkg/generated/informers/externalversions"
)

// A report is what a client of the API saw.
type report struct {
	Requests, Retries, Failures int
	Created, Watched, Rewatches int
	Slowest                     time.Duration
	Last                        string // error
}

// client is a controller of client-go: it creates one object after the other, each with three retries a second apart, and an informer watches
// them. It reports when its standard input ends.
func client(url string) error {
	clients, err := versioned.NewForConfig(&rest.Config{Host: url, QPS: 100, Burst: 100, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return err
	}
	var watched sync.Map
	var rewatches, stop atomic.Int64
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	informer := factory.Wardle().V1alpha1().Flunders().Informer()
	if err := informer.SetWatchErrorHandler(func(*cache.Reflector, error) { rewatches.Add(1) }); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { watched.Store(o.(*v1alpha1.Flunder).Name, true) }}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory.Start(ctx.Done())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop.Store(1) }()

	var r report
	var created []string
	for ; stop.Load() == 0; r.Requests++ {
		name, start, tries := fmt.Sprintf("f%d", r.Requests), time.Now(), 0
		err := retry.OnError(wait.Backoff{Steps: 4, Duration: time.Second}, func(error) bool { return true }, func() error {
			tries++
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := clients.WardleV1alpha1().Flunders("default").Create(ctx, &v1alpha1.Flunder{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FlunderSpec{Reference: "x"}}, metav1.CreateOptions{})
			if errors.IsAlreadyExists(err) { // the answer to the try before was lost
				return nil
			}
			if err != nil {
				r.Last = err.Error()
			}
			return err
		})
		r.Retries, r.Slowest = r.Retries+tries-1, max(r.Slowest, time.Since(start))
		if err != nil {
			r.Failures++
		} else {
			created = append(created, name)
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Created = len(created)
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		r.Watched = 0
		for _, name := range created {
			if _, ok := watched.Load(name); ok {
				r.Watched++
			}
		}
		return r.Watched == r.Created, nil
	})
	r.Rewatches = int(rewatches.Load())
	return json.NewEncoder(os.Stdout).Encode(r)
}
