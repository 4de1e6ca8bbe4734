// Package completion asks the API servers of clusters whether their bootstrap is complete, as openshift-install does.
//
// It reads the kubeconfig of a cluster and one ConfigMap, and changes nothing. An answer counts for a while only.
//
//	a := completion.New(log)
//	a.Ask(ctx, &asking, cl, machines)
//	value, why := a.Of(cl, time.Now())
package completion
