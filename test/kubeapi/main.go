// Command kubeapi is a Kubernetes API server for tests: the generic API server of Kubernetes with etcd behind it, and the one API group of
// k8s.io/sample-apiserver. It has watches, /readyz and an orderly stop as every API server, and asks nobody for his name.
//
//	kubeapi --etcd-servers http://… --bind-address 10.0.0.5 --secure-port 6443 --cert-dir DIR
//
// It is a client of such a server, too, with client-go, and reports what it saw when its standard input ends:
//
//	kubeapi client https://10.0.0.5:6443
//
// It is a module of its own: it takes minutes to build, and the product has none of its dependencies.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/apiserver"
	sampleopenapi "k8s.io/sample-apiserver/pkg/generated/openapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeapi:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		return client(os.Args[2])
	}
	o := options.NewRecommendedOptions("/registry/lab.test", apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	o.Etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(v1alpha1.SchemeGroupVersion, schema.GroupKind{Group: v1alpha1.GroupName})
	o.Authentication, o.Authorization, o.CoreAPI, o.Admission = nil, nil, nil, nil // there is no other API server to ask
	o.Features.EnablePriorityAndFairness = false
	flags := pflag.NewFlagSet("kubeapi", pflag.ContinueOnError)
	o.SecureServing.AddFlags(flags)
	o.Etcd.AddFlags(flags)
	delay := flags.Duration("shutdown-delay-duration", 0, "how long it answers after a signal, while /readyz says that it does not")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
		return err
	}
	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(sampleopenapi.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(apiserver.Scheme))
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(sampleopenapi.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(apiserver.Scheme))
	config.ShutdownDelayDuration = *delay
	config.FeatureGate = utilfeature.DefaultFeatureGate
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	if err := o.ApplyTo(config); err != nil {
		return err
	}
	c := &apiserver.Config{GenericConfig: config}
	server, err := c.Complete().New()
	if err != nil {
		return err
	}
	return server.GenericAPIServer.PrepareRun().RunWithContext(genericapiserver.SetupSignalContext())
}
