// Package metricsreader declares what who scrapes the metrics of the processes may do: nothing else. The role is
// bound to them in the control cluster, which is asked for both processes.
//
// +kubebuilder:rbac:urls=/metrics,verbs=get
package metricsreader
