"""Claims that are filled before they are bound: from images, addresses and other claims (`cdi.kubevirt.io`)."""
