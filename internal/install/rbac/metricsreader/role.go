// Package metricsreader declares the permissions of a metrics scraper: nothing else. The role is bound to
// them in the control cluster, which is asked for both processes.
//
// +kubebuilder:rbac:urls=/metrics,verbs=get
package metricsreader
