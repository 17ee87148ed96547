package simcloud

import "time"

// Semantics are unusual behaviors of real clouds that a driver must handle. By default, all these behaviors are off.
// Any of them can be combined. Changes apply to later writes and reads. To simulate problems of single calls, such as
// lost answers and throttling, use a FaultRule.
type Semantics struct {
	// GetLag is the time until GetInstance shows a write. ListLag is the time until ListInstances and ListAddresses
	// show a write. A longer Settings.ReadLag takes precedence. Default: 0s.
	GetLag  Duration `json:"getLag"`
	ListLag Duration `json:"listLag"`
	// TagLag is the time until GetInstance and ListInstances show a change of tags. Default: 0s.
	TagLag Duration `json:"tagLag"`
	// ListOmits makes every n-th page of ListInstances omit its first instance. Default: 0, which means that no
	// instance is omitted.
	ListOmits int `json:"listOmits"`
	// ListRepeats reverses each page of ListInstances and repeats one of its instances. Default: false.
	ListRepeats bool `json:"listRepeats"`
	// StateReturns is how long every second read returns the previous state after a state change. Default: 0s.
	StateReturns Duration `json:"stateReturns"`
	// OtherCase is true if ID, ProviderID, Region and Zone are in upper case in every second answer. Default: false.
	OtherCase bool `json:"otherCase"`
	// KeepAddresses keeps the address of a terminated instance until DeleteAddress is called. Default: false.
	KeepAddresses bool `json:"keepAddresses"`
	// AddressHold is the time after the termination of an instance during which DeleteAddress returns CodeConflict.
	// Default: 0s.
	AddressHold Duration `json:"addressHold"`
	// FiltersIgnored makes lists ignore the tags and the name in the options. Default: false.
	FiltersIgnored bool `json:"filtersIgnored"`
	// QuotaLag is how long a terminated instance still counts against quota and capacity. Default: 0s.
	QuotaLag Duration `json:"quotaLag"`
	// AnswerPadding is the number of bytes of white space before each answer to a customer. Default: 0.
	AnswerPadding int `json:"answerPadding"`
	// ClockOffset is added to all times in answers of the customer API. ClockOffset can be negative. Default: 0s.
	ClockOffset Duration `json:"clockOffset"`
}

// SemanticsPatch contains new values of Semantics. If a field is nil, the current value stays unchanged.
type SemanticsPatch struct {
	GetLag         *Duration `json:"getLag,omitempty"`
	ListLag        *Duration `json:"listLag,omitempty"`
	TagLag         *Duration `json:"tagLag,omitempty"`
	ListOmits      *int      `json:"listOmits,omitempty"`
	ListRepeats    *bool     `json:"listRepeats,omitempty"`
	StateReturns   *Duration `json:"stateReturns,omitempty"`
	OtherCase      *bool     `json:"otherCase,omitempty"`
	KeepAddresses  *bool     `json:"keepAddresses,omitempty"`
	AddressHold    *Duration `json:"addressHold,omitempty"`
	FiltersIgnored *bool     `json:"filtersIgnored,omitempty"`
	QuotaLag       *Duration `json:"quotaLag,omitempty"`
	AnswerPadding  *int      `json:"answerPadding,omitempty"`
	ClockOffset    *Duration `json:"clockOffset,omitempty"`
}

// Address is a network address that the cloud assigned to an instance. If Semantics.KeepAddresses is true, the address
// still exists after the termination of the instance, until DeleteAddress is called.
type Address struct {
	// ID is the ID of the instance with the prefix "a-" instead of "i-".
	ID         string `json:"id"`
	IP         string `json:"ip"`
	InstanceID string `json:"instanceID"`
	Region     string `json:"region"`
	Zone       string `json:"zone"`
	// InUse is true if the instance is not terminated.
	InUse bool `json:"inUse"`
	// Tags are the tags of the instance.
	Tags       map[string]string `json:"tags,omitempty"`
	LaunchTime time.Time         `json:"launchTime"`
}

// AddressList is one page of addresses, in the order of creation.
type AddressList struct {
	Addresses []Address `json:"addresses"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}
