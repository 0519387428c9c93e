//go:build tools

// Package kubernetes names what t/ship/kubernetes.t takes of Go modules.
package kubernetes

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
