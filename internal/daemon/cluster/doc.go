// Package cluster decides how a cluster comes up: its phase, what its machines wait for, which of them may be switched on, and when
// the bootstrap machine is no longer needed.
//
// It observes nothing and changes nothing. The daemon observes, asks and acts:
//
//	s := cluster.Assess(c, observed, record)
//	for _, a := range s.Actions { … }   // switch on, remove from balancers, switch off
//
// The order is OpenShift's, and fits what kubeadm and Talos do: the bootstrap machine and the control plane, then the workers once the control
// plane serves. A control plane serves when more than half of its machines pass the check of the API's balancer.
package cluster
