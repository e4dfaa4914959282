// Package rest checks the JSON body of a tenant's request and reduces it to the fields of the service definition.
//
// What protojson would get wrong for OpenAI's clients is decided here: a number in quotes, a doubled field, an unknown
// field, and a field of OpenAI's that we do not serve. Fields that do not change the answer are dropped; every other
// one is refused by its name. A null is an absent field.
package rest
