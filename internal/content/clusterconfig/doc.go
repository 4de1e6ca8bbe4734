// Package clusterconfig reads what the installers of clusters wrote, and compares it with a lab.
//
// It knows the folder of "openshift-install create ignition-configs" and install-config.yaml, the folder of "talosctl gen config", and
// configuration files of kubeadm. It writes nothing and opens no connection.
//
//	set, err := clusterconfig.ReadTalos(dir)
//	cluster, report := set.Check(lab, time.Now())
//	copies, problems := set.Place(cluster, boot.DocumentFiles)
package clusterconfig
