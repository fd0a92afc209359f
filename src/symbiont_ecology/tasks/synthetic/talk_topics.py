"""Topics of open questions: a brief sentence and a longer one about each, in plain English."""

TOPICS: dict[str, tuple[str, str]] = {
    "volcanoes": (
        "Volcanoes let hot rock escape from the ground.",
        "Volcanoes form where molten rock from deep inside the Earth breaks through the crust.",
    ),
    "bread": (
        "Bread is baked from flour and water.",
        "Bread becomes light and soft because yeast fills the dough with small bubbles of gas.",
    ),
    "honey bees": (
        "Honey bees turn nectar into honey.",
        "Honey bees live in large colonies and share the work of feeding, cleaning and defending "
        "the hive.",
    ),
    "the Moon": (
        "The Moon circles the Earth every month.",
        "The Moon shines because its dusty surface throws back a part of the light of the Sun.",
    ),
    "bicycles": (
        "Bicycles are cheap, quiet and healthy.",
        "Bicycles carry a rider farther than walking does because wheels waste very little energy.",
    ),
    "libraries": (
        "Libraries lend books to everybody.",
        "Libraries keep books in order so that any visitor can find and borrow what they need.",
    ),
    "rivers": (
        "Rivers carry rain back to the sea.",
        "Rivers shape the land over thousands of years by moving stones, sand and mud downhill.",
    ),
    "coffee": (
        "Coffee is made from roasted seeds.",
        "Coffee keeps people awake because caffeine blocks a signal that makes the brain feel "
        "tired.",
    ),
    "chess": (
        "Chess is a game of patience and plans.",
        "Chess has simple rules, yet two good players can think about one position for an hour.",
    ),
    "elephants": (
        "Elephants are the largest land animals.",
        "Elephants use their long trunks to drink, to smell and to greet other members of the "
        "herd.",
    ),
    "gardens": (
        "Gardens need sun, water and some time.",
        "Gardens give people fresh vegetables and flowers, and a quiet place to work with their "
        "hands.",
    ),
    "trains": (
        "Trains carry many people at once.",
        "Trains need little energy for each passenger because steel wheels roll easily on steel "
        "rails.",
    ),
    "snow": (
        "Snow is made of tiny ice crystals.",
        "Snow keeps the ground warm in winter because the air between the flakes holds back the "
        "cold.",
    ),
    "whales": (
        "Whales are mammals that live in the sea.",
        "Whales must come to the surface to breathe, although some can dive for more than an hour.",
    ),
    "music": (
        "Music moves people without any words.",
        "Music joins rhythm and melody, and people in every known culture sing, dance or play it.",
    ),
    "cheese": (
        "Cheese is made from thickened milk.",
        "Cheese gets its taste while it ripens, because bacteria slowly change the fat and "
        "protein in it.",
    ),
    "maps": (
        "Maps show where places are.",
        "Maps make a large piece of land small enough to study on a table or a screen.",
    ),
    "owls": (
        "Owls hunt small animals at night.",
        "Owls fly almost without a sound because the edges of their feathers are soft.",
    ),
    "glass": (
        "Glass is made from melted sand.",
        "Glass can be melted again and again, so old bottles are easily turned into new ones.",
    ),
    "earthquakes": (
        "Earthquakes shake the ground without warning.",
        "Earthquakes happen when two large pieces of the crust of the Earth suddenly slip past "
        "each other.",
    ),
    "tea": (
        "Tea is brewed from dried leaves.",
        "Tea tastes green or black depending on how the fresh leaves were treated after picking.",
    ),
    "photography": (
        "Photography writes with light.",
        "Photography became popular when small cameras with film made it simple for everyone to "
        "take pictures.",
    ),
    "dreams": (
        "Dreams come mostly in light sleep.",
        "Dreams feel real while they last because the parts of the brain that judge them are "
        "resting.",
    ),
    "forests": (
        "Forests cool the air around them.",
        "Forests give shelter to countless animals and hold the soil in place when heavy rain "
        "falls.",
    ),
    "bridges": (
        "Bridges join what water divides.",
        "Bridges must carry their own weight, the traffic on them and the push of strong winds.",
    ),
    "cats": (
        "Cats are curious and sleep a lot.",
        "Cats purr when they are content, but also when they are hurt or afraid.",
    ),
    "dogs": (
        "Dogs are loyal friends of people.",
        "Dogs descend from wolves and have lived together with people for many thousands of years.",
    ),
    "penguins": (
        "Penguins swim well but cannot fly.",
        "Penguins keep warm in icy water because their thick feathers hold a layer of dry air.",
    ),
    "clocks": (
        "Clocks divide the day into equal parts.",
        "Clocks count a steady motion, such as the swing of a pendulum or the trembling of a "
        "crystal.",
    ),
    "paper": (
        "Paper is pressed from wet fibres.",
        "Paper was invented in China about two thousand years ago and spread slowly to the west.",
    ),
    "deserts": (
        "Deserts are dry and often cold at night.",
        "Deserts get very little rain, so the plants that live there store water in thick stems.",
    ),
    "soup": (
        "Soup warms you on a cold day.",
        "Soup is easy to cook because nearly any vegetable tastes good after an hour in the pot.",
    ),
    "swimming": (
        "Swimming trains the whole body.",
        "Swimming is kind to the joints because water carries most of the weight of the body.",
    ),
    "stars": (
        "Stars are distant suns, and most are very old.",
        "Stars shine because the enormous pressure in their centres turns hydrogen into helium.",
    ),
    "kites": (
        "Kites fly on a steady wind.",
        "Kites stay in the air because the wind pushes against them while a string holds them "
        "back.",
    ),
    "tomatoes": (
        "Tomatoes love warm and sunny places.",
        "Tomatoes came to Europe from America and were grown for a long time only as a decoration.",
    ),
    "salt": (
        "Salt makes most food taste better.",
        "Salt was once so precious that towns grew rich from the mines and roads used to trade it.",
    ),
    "horses": (
        "Horses run fast and tire slowly.",
        "Horses helped people to travel, to plough fields and to carry messages long before "
        "engines existed.",
    ),
    "rain": (
        "Rain falls when clouds grow heavy.",
        "Rain begins as tiny drops that join each other in a cloud until they are too heavy to "
        "float.",
    ),
    "castles": (
        "Castles protected lords and villagers.",
        "Castles had thick walls and narrow windows so that a few people could hold off many.",
    ),
    "potatoes": (
        "Potatoes grow below the ground.",
        "Potatoes fed millions of people in Europe because they grow well even in cold and poor "
        "soil.",
    ),
    "sharks": (
        "Sharks are older than the dinosaurs.",
        "Sharks lose their teeth throughout life and grow new rows of them behind the old ones.",
    ),
    "poetry": (
        "Poetry says much in few words.",
        "Poetry pays attention to the sound of words as well as to what they mean.",
    ),
    "mountains": (
        "Mountains rise where plates collide.",
        "Mountains grow only a few millimetres each year, while wind and ice wear them down again.",
    ),
    "butterflies": (
        "Butterflies begin life as caterpillars.",
        "Butterflies drink nectar with a long tube that they roll up when they do not need it.",
    ),
    "knitting": (
        "Knitting turns yarn into warm clothes.",
        "Knitting needs only two needles and some wool, and many people find it calming in the "
        "evening.",
    ),
    "lighthouses": (
        "Lighthouses warn ships of rocks.",
        "Lighthouses flash in a pattern of their own so that sailors can tell where they are.",
    ),
    "apples": (
        "Apples keep well through the winter.",
        "Apples come in thousands of kinds, and most of them were found by chance in an orchard.",
    ),
    "painting": (
        "Painting needs colour and a patient eye.",
        "Painting outdoors became popular when colours were sold in small tubes that were easy to "
        "carry.",
    ),
    "glaciers": (
        "Glaciers are slow rivers of ice.",
        "Glaciers form where more snow falls in winter than can melt during the following summer.",
    ),
    "markets": (
        "Markets bring farmers and buyers together.",
        "Markets are places to talk as well as to shop, and many have been held for centuries.",
    ),
    "robots": (
        "Robots do dull work without rest.",
        "Robots weld cars, clean floors and explore places where it would be dangerous to send "
        "people.",
    ),
    "spiders": (
        "Spiders spin webs to catch insects.",
        "Spiders make silk that is lighter than cotton and, for its weight, stronger than steel.",
    ),
    "rainbows": (
        "Rainbows need sun and rain at once.",
        "Rainbows appear because drops of water bend each colour of the light by a different "
        "angle.",
    ),
    "bamboo": (
        "Bamboo grows faster than any tree.",
        "Bamboo is a kind of grass, yet its hollow stems are strong enough to build houses.",
    ),
    "museums": (
        "Museums keep old things safe.",
        "Museums show how people lived in the past and help visitors to understand where they "
        "come from.",
    ),
    "winter": (
        "Winter days are short and cold.",
        "Winter comes because one half of the Earth leans away from the Sun for some months.",
    ),
    "rice": (
        "Rice feeds half of the world.",
        "Rice grows in flooded fields because the standing water keeps most of the weeds away.",
    ),
    "violins": (
        "Violins sing under a moving bow.",
        "Violins have a hollow body of thin wood that makes the sound of the strings louder.",
    ),
    "cooking": (
        "Cooking makes food safe and tasty.",
        "Cooking at home saves money and lets you decide how much salt and sugar you eat.",
    ),
    "frogs": (
        "Frogs live in water and on land.",
        "Frogs breathe partly through their thin skin, so they suffer quickly when water is dirty.",
    ),
    "windmills": (
        "Windmills turn wind into useful work.",
        "Windmills once ground grain and pumped water, and their modern relatives make electric "
        "power.",
    ),
    "camping": (
        "Camping brings you close to nature.",
        "Camping is more pleasant if the tent stands on flat ground and out of the wind.",
    ),
    "gold": (
        "Gold never rusts or fades.",
        "Gold is so soft that it is usually mixed with other metals before it becomes a ring.",
    ),
    "diaries": (
        "Diaries keep memories for later.",
        "Diaries help people to sort their thoughts because writing takes more time than thinking "
        "does.",
    ),
    "planets": (
        "Planets travel around their star.",
        "Planets near the Sun are small and rocky, while those far away are large balls of gas.",
    ),
    "squirrels": (
        "Squirrels hide nuts for the winter.",
        "Squirrels forget some of the nuts that they bury, and new trees grow from them in spring.",
    ),
    "theatre": (
        "Theatre tells stories on a stage.",
        "Theatre depends on a shared moment, because actors and audience react to each other "
        "every evening.",
    ),
    "oceans": (
        "Oceans cover most of the Earth.",
        "Oceans store the warmth of summer and give it back in winter, which makes coasts mild.",
    ),
    "chocolate": (
        "Chocolate is made from cacao seeds.",
        "Chocolate was first a bitter drink in America, long before anyone mixed it with sugar "
        "and milk.",
    ),
    "umbrellas": (
        "Umbrellas keep off rain and sun.",
        "Umbrellas were carried as a shade against the sun for ages before people used them in "
        "rain.",
    ),
    "carpets": (
        "Carpets keep feet warm.",
        "Carpets are woven from wool or silk, and a fine one can take several years to finish.",
    ),
    "skiing": (
        "Skiing is fast and cold and fun.",
        "Skiing began as a way to travel over deep snow, thousands of years before it was a sport.",
    ),
    "mushrooms": (
        "Mushrooms are the fruits of a fungus.",
        "Mushrooms appear after rain, while the main part of the fungus lives hidden in the soil.",
    ),
    "dolphins": (
        "Dolphins are clever and playful.",
        "Dolphins find fish in dark water by sending out clicks and listening for the echo.",
    ),
    "newspapers": (
        "Newspapers report what happened lately.",
        "Newspapers spread quickly once paper was cheap and steam engines could drive the "
        "printing presses.",
    ),
    "tunnels": (
        "Tunnels shorten the way through hills.",
        "Tunnels need fans or open shafts so that the air inside stays fresh for everyone.",
    ),
    "strawberries": (
        "Strawberries ripen in early summer.",
        "Strawberries carry their seeds on the outside, which is very unusual among the fruits we "
        "eat.",
    ),
    "lakes": (
        "Lakes are still and often deep.",
        "Lakes freeze from the top, so fish can survive the winter in the warmer water below.",
    ),
    "trees": (
        "Trees can live for centuries.",
        "Trees drink water with their roots and lift it to the highest leaves without any pump.",
    ),
}
