package main

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/internal/install/manifests"
)

func render(r installer.Release) ([]*unstructured.Unstructured, error) {
	return manifests.RenderProvider(manifests.Release{Name: r.Name, Namespace: r.Namespace, Values: r.Values,
		ManagedBy: installer.Name})
}
