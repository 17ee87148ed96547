// Package metricsreader declares the permissions of a metrics scraper. The role is bound in the control cluster,
// because all processes ask the API server of the control cluster for authorization.
//
// +kubebuilder:rbac:urls=/metrics,verbs=get
package metricsreader
