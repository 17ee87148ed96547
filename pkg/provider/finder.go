package provider

import (
	"context"
	"slices"
)

// Finder is implemented by drivers that can list instances that Machinist does not manage, for a Migration without an
// old system. Such a driver also implements Adopter, and Importer for its method Disown.
type Finder interface {
	// Find returns all instances in the scope of the class: those that List would return if they had the cluster's tag.
	// This includes instances of any owner, and of any flavor, image and network. Find returns an instance only once.
	//
	// An invalid providerSpec must not widen the scope, as for List. If the cloud fails to return a page, Find returns
	// an error. It must never return a shorter list without an error.
	Find(ctx context.Context, req FindRequest) ([]FoundInstance, error)
}

// FindRequest asks for the instances in the scope of a class.
type FindRequest struct {
	Class Class
}

// FoundInstance is an instance that may have no Machine.
type FoundInstance struct {
	// Instance is the instance as Driver.Get reports it.
	Instance Instance
	// Name is the name of the instance in the cloud.
	Name string
	// Metadata contains the tags of the instance, or what the cloud has instead of tags.
	Metadata map[string]string
	// Networks contains the names and the IDs of the networks of the instance, as far as the cloud reports them.
	Networks []string
	// OtherSystem names another machine controller that manages the instance according to its tags, with the tag. It is
	// empty if the driver knows no such tag on the instance.
	OtherSystem string
	// NotAdoptable explains why Adopt refuses the instance, such as a missing mark, and what an administrator has to
	// do. It is empty if the driver knows no reason. Tags of other owners are no reason, because Instance contains
	// them.
	NotAdoptable string
	// Differences contains the fields in which the instance differs from the class. Fields that the driver cannot
	// compare are omitted.
	Differences []Difference
}

// Difference is a field in which an instance differs from its class.
type Difference struct {
	// Field is the path of the field below providerSpec, such as instanceType.
	Field string
	// Instance and Class are the two values, without secrets.
	Instance, Class string
}

// Differing returns the fields whose values differ.
func Differing(all ...Difference) []Difference {
	return slices.DeleteFunc(all, func(d Difference) bool { return d.Instance == d.Class })
}
