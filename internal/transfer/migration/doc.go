// Package migration takes over the fleets of other systems. A Migration says which one and how far; its phases lead
// from reading the old objects to removing them. Nothing is stored of single objects: each pass reads what exists at
// the API server and at the cloud, does what the phase asks for next, and can be stopped anywhere.
package migration
