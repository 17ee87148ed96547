package v1beta1
